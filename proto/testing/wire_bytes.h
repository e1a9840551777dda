// Protobuf wire format by hand, for tests of what no generated class would write.
#ifndef WEFT_PROTO_TESTING_WIRE_BYTES_H_
#define WEFT_PROTO_TESTING_WIRE_BYTES_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft::testing {

// A varint, padded to `size` bytes where its shortest form is shorter: legal, but not canonical.
inline std::string WireVarint(uint64_t value, size_t size = 1) {
  std::string bytes;
  while (value >= 0x80 || bytes.size() + 1 < size) {
    bytes += static_cast<char>(0x80 | (value & 0x7f));
    value >>= 7;
  }
  return bytes + static_cast<char>(value);
}

inline std::string WireTag(int field, int wire_type) {
  return WireVarint(static_cast<uint64_t>(field) << 3 | wire_type);
}

// A field that holds a number.
inline std::string WireNumber(int field, uint64_t value) {
  return WireTag(field, 0) + WireVarint(value);
}

// A field that holds bytes: a string, a message, a packed list.
inline std::string WireBytes(int field, absl::string_view payload) {
  return absl::StrCat(WireTag(field, 2), WireVarint(payload.size()), payload);
}

inline std::string WireGroup(int field, absl::string_view content) {
  return absl::StrCat(WireTag(field, 3), content, WireTag(field, 4));
}

// Groups in groups.
inline std::string WireNestedGroups(int field, int depth) {
  std::string bytes;
  for (int i = 0; i < depth; ++i) bytes += WireTag(field, 3);
  for (int i = 0; i < depth; ++i) bytes += WireTag(field, 4);
  return bytes;
}

// A program of one root block that has these fields beside its numbers.
inline std::string WireProgram(absl::string_view block_fields) {
  const std::string block =
      absl::StrCat(WireNumber(1, 0), WireNumber(2, static_cast<uint64_t>(-1)), block_fields);
  return WireBytes(1, block);
}
inline std::string WireOp(absl::string_view op_fields) { return WireBytes(4, op_fields); }
inline std::string WireVar(absl::string_view var_fields) { return WireBytes(3, var_fields); }

}  // namespace weft::testing

#endif  // WEFT_PROTO_TESTING_WIRE_BYTES_H_
