#ifndef WEFT_TOOLS_INSPECT_WRAP_TEXT_H_
#define WEFT_TOOLS_INSPECT_WRAP_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// Breaks a paragraph, whose words are separated by one space each, into lines of at most `width`
// bytes. A longer word has a line of its own. Lines but the first begin with `indent` spaces, which
// count. Linear time.
std::string WrapText(absl::string_view paragraph, size_t width, size_t indent = 0);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_WRAP_TEXT_H_
