// What the files are made of: the wire format of protobuf. And SHA-256.
#ifndef WEFT_CHECKER_WIRE_H_
#define WEFT_CHECKER_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace checker {

// Thrown by everything here that does not accept its input.
struct Failure {
  std::string why;
  std::vector<std::string> own = {};  // states that may differ between ranks, if that is why
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}

template <typename... Parts>
void Expect(bool is_true, const Parts&... why_not) {
  if (!is_true) throw Failure{Text(why_not...)};
}

// The fields of a message, in order. Groups and field 0 are refused.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}
  bool Next();  // false: there are no more

  uint64_t number = 0;
  int wire_type = 0;
  uint64_t value = 0;      // of wire types 0, 1 and 5
  std::string_view bytes;  // of wire type 2
  std::string_view whole;  // with the tag

  // The same, of a field that must have that wire type.
  std::string_view Bytes() const;
  uint64_t Varint() const;
  float Float() const;

 private:
  uint64_t ReadVarint();
  uint64_t ReadFixed(size_t size);
  std::string_view rest_;
};

// 64 hexadecimal digits.
std::string Sha256(std::string_view bytes);

}  // namespace checker

#endif  // WEFT_CHECKER_WIRE_H_
