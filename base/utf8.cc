#include "base/utf8.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft {
namespace {

// Length of the well-formed sequence that starts a string of `left` bytes; 0 if there is none.
size_t SequenceLength(const unsigned char* s, size_t left) {
  if (s[0] < 0x80) return 1;
  if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
  const size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
  if (left < length) return 0;
  // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
  unsigned char low = 0x80, high = 0xbf;
  if (s[0] == 0xe0) low = 0xa0;
  if (s[0] == 0xed) high = 0x9f;
  if (s[0] == 0xf0) low = 0x90;
  if (s[0] == 0xf4) high = 0x8f;
  if (s[1] < low || s[1] > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (s[i] < 0x80 || s[i] > 0xbf) return 0;
  }
  return length;
}

}  // namespace

bool IsValidUtf8(absl::string_view bytes) {
  const auto* s = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    // Names are nearly always ASCII: eight bytes at a time.
    while (left >= 8) {
      uint64_t word;
      std::memcpy(&word, s, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      s += 8;
      left -= 8;
    }
    if (left == 0) break;
    const size_t length = SequenceLength(s, left);
    if (length == 0) return false;
    s += length;
    left -= length;
  }
  return true;
}

}  // namespace weft
