// UTF-8 validity, which Abseil 20220623 does not provide.
#ifndef WEFT_BASE_UTF8_H_
#define WEFT_BASE_UTF8_H_

#include "absl/strings/string_view.h"

namespace weft {

// True where `bytes` is well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing
// above U+10FFFF). O(length).
bool IsValidUtf8(absl::string_view bytes);

}  // namespace weft

#endif  // WEFT_BASE_UTF8_H_
