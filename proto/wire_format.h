// Protobuf's wire format, read field by field.
//
// Built on protobuf's own reader, and stricter than it in the places where generated classes are:
// what is read without an error here, they can parse.
#ifndef WEFT_PROTO_WIRE_FORMAT_H_
#define WEFT_PROTO_WIRE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"
#include "google/protobuf/wire_format_lite.h"

namespace weft::wire {

using Stream = ::google::protobuf::io::CodedInputStream;

// Tags: field number and wire type.
constexpr uint32_t LengthDelimited(int field_number) {
  using Lite = ::google::protobuf::internal::WireFormatLite;
  return Lite::MakeTag(field_number, Lite::WIRETYPE_LENGTH_DELIMITED);
}
constexpr uint32_t Varint(int field_number) {
  using Lite = ::google::protobuf::internal::WireFormatLite;
  return Lite::MakeTag(field_number, Lite::WIRETYPE_VARINT);
}

// What is left of the enclosing message.
inline absl::string_view Rest(Stream* in) {
  const void* data;
  int available;
  in->GetDirectBufferPointerInline(&data, &available);
  return absl::string_view(static_cast<const char*>(data), available);
}

// True where the varint that comes next takes more than five bytes, as no tag or length does:
// CodedInputStream would drop the upper bits, generated classes refuse it.
inline bool LongVarintIsNext(Stream* in) {
  const absl::string_view rest = Rest(in);
  const auto* b = reinterpret_cast<const uint8_t*>(rest.data());
  if (rest.empty() || b[0] < 0x80) return false;
  return rest.size() > 5 && (b[1] & b[2] & b[3] & b[4] & 0x80) != 0;
}

// The next tag; 0 at the end of the message, or where there is no proper tag: AtEnd tells.
inline uint32_t NextTag(Stream* in) {
  if (LongVarintIsNext(in)) return 0;
  return in->ReadTag();
}

// True where NextTag has returned 0 because the message ends there.
inline bool AtEnd(Stream* in) { return in->ConsumedEntireMessage(); }

inline bool ReadSize(Stream* in, int* size) {
  return !LongVarintIsNext(in) && in->ReadVarintSizeAsInt(size);
}

// Reads a length and the bytes after it. False where they reach beyond the enclosing message.
inline bool ReadBytes(Stream* in, absl::string_view* bytes) {
  int size;
  if (!ReadSize(in, &size)) return false;
  *bytes = Rest(in).substr(0, size);
  return bytes->size() == static_cast<size_t>(size) && in->Skip(size);
}

// Takes the first field off a message where it has that tag, and tag and length take one byte each:
// a shortcut for short names. Otherwise false, and the message is as before.
inline bool TakeShortField(uint32_t tag, absl::string_view* message, absl::string_view* payload) {
  if (message->size() < 2) return false;
  const auto first = static_cast<uint8_t>((*message)[0]),
             size = static_cast<uint8_t>((*message)[1]);
  if (first != tag || tag >= 0x80 || size >= 0x80 || size > message->size() - 2) return false;
  *payload = message->substr(2, size);
  message->remove_prefix(2 + size);
  return true;
}

// Takes the first field off a well-formed message where it is length-delimited and its tag takes
// one byte: `whole` is the field with tag and length, `payload` what is in it. Otherwise false, and
// the message is as before. Quicker than a stream for walking over many short messages.
inline bool TakeField(absl::string_view* message, uint32_t* tag, absl::string_view* whole,
                      absl::string_view* payload) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>((*message)[i]); };
  if (message->size() < 2 || byte(0) >= 0x80 || (byte(0) & 7) != 2) return false;
  size_t size = 0, header = 1;
  for (int shift = 0; shift < 35 && header < message->size(); shift += 7) {
    const uint8_t next = byte(header++);
    size |= size_t{next & 0x7fu} << shift;
    if (next >= 0x80) continue;
    if (size > message->size() - header) return false;
    *tag = byte(0);
    *whole = message->substr(0, header + size);
    *payload = message->substr(header, size);
    message->remove_prefix(header + size);
    return true;
  }
  return false;
}

// Reads a varint as generated classes read an int32: the upper bits are dropped.
inline bool ReadInt(Stream* in, int* value) {
  uint64_t raw;
  if (!in->ReadVarint64(&raw)) return false;
  *value = static_cast<int>(raw);
  return true;
}

// Has what stands a kilobyte behind a message loaded into the cache, as much as the message is
// long. Whoever walks from message to message waits for memory at each otherwise, since no CPU
// foresees steps of uneven length: walking takes an eighth of the time with this.
inline void PrefetchBehind(absl::string_view message) {
  constexpr uintptr_t kAhead = 1024, kCacheLine = 64;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(message.data()) + kAhead;
  for (uintptr_t p = begin; p < begin + message.size(); p += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(p));
  }
}

// Passes over the value of a field that nobody asks for.
bool SkipField(Stream* in, uint32_t tag);

// A stream over one message.
class MessageStream : public Stream {
 public:
  explicit MessageStream(absl::string_view message)
      : Stream(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size())) {
    PushLimit(static_cast<int>(message.size()));
  }
};

// Restricts a stream to the next message and undoes that. ok() tells whether the length was sound.
class MessageScope {
 public:
  explicit MessageScope(Stream* in) : in_(in) {
    int size;
    if (!ReadSize(in, &size)) return;
    const int left = in->BytesUntilLimit();
    if (left >= 0 && size > left) return;
    limit_ = in->PushLimit(size);
    ok_ = true;
  }
  ~MessageScope() {
    if (ok_) in_->PopLimit(limit_);
  }
  bool ok() const { return ok_; }

 private:
  Stream* in_;
  Stream::Limit limit_ = 0;
  bool ok_ = false;
};

enum class Required { kChecked, kIgnored };

// Whether the generated class of a message type can read the bytes, and, where they are checked,
// whether required fields are there, in nested messages too. An enum number that this version does
// not know counts as there: it is kept among the unknown fields. Unlike the generated classes, this
// takes no memory for unknown fields, which would be up to 16 times their bytes. O(bytes).
bool IsWellFormed(absl::string_view bytes, const ::google::protobuf::Descriptor& type,
                  Required required);

template <typename M>
bool IsWellFormed(absl::string_view bytes, Required required = Required::kChecked) {
  return IsWellFormed(bytes, *M::descriptor(), required);
}

// Tag and length of a field that holds `payload_size` bytes.
std::string FieldHeader(int field_number, size_t payload_size);

}  // namespace weft::wire

#endif  // WEFT_PROTO_WIRE_FORMAT_H_
