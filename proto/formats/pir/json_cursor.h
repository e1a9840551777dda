// JSON, read from front to back without a copy.
#ifndef WEFT_PROTO_FORMATS_PIR_JSON_CURSOR_H_
#define WEFT_PROTO_FORMATS_PIR_JSON_CURSOR_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::pir {

// A position in JSON text. All functions skip white space first. They return false after an error,
// which stays, so that it is enough to look at status() in the end; it has the byte of the error,
// what was expected and what was found.
class JsonCursor {
 public:
  // Deeper values are refused, so that neither this nor a caller's recursion overflows the stack.
  static constexpr int kMaxDepth = 512;

  // `text` is at byte `offset` of the file, for messages.
  explicit JsonCursor(absl::string_view text, size_t offset = 0)
      : begin_(text.data()), next_(begin_), end_(begin_ + text.size()), offset_(offset) {}

  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  // The next character that is not white space; 0 at the end.
  char Peek();
  const char* position() const { return next_; }

  // Calls read(key), which must consume the value and returns false to stop. The key is without
  // quotes, with its escapes.
  bool ReadObject(absl::FunctionRef<bool(absl::string_view)> read);
  // Calls read() for every element.
  bool ReadArray(absl::FunctionRef<bool()> read);
  // Without quotes, with its escapes: see JsonUnescape.
  bool ReadString(absl::string_view* text);
  // An integer of 64 bits, in decimal, without fraction and exponent.
  bool ReadInteger(int64_t* value);
  // Any value, checked against the grammar. O(bytes), without recursion.
  bool SkipValue(absl::string_view* bytes = nullptr);
  // Only white space follows.
  bool ExpectEnd();

  // Marks a key of an object as read; an error if it was.
  bool Once(bool* seen);

  // Sets the error "byte N: expected ..., found ..." here. Returns false.
  bool Fail(absl::string_view expected);
  bool Fail(absl::string_view expected, absl::string_view found, const char* at);

 private:
  bool Consume(char c);
  bool Enter();
  bool SkipString();
  bool SkipNumber();
  bool SkipLiteral(absl::string_view word);
  bool SkipScalar();

  const char* begin_;
  const char* next_;
  const char* end_;
  size_t offset_;
  int depth_ = 0;
  absl::Status status_;
};

// The UTF-8 of a string that ReadString or SkipValue (which checked its escapes) has read.
// InvalidArgument for half of a surrogate pair.
absl::StatusOr<std::string> JsonUnescape(absl::string_view text);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_JSON_CURSOR_H_
