// Patterns of names.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_NAME_PATTERN_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_NAME_PATTERN_H_

#include "absl/strings/string_view.h"

namespace weft {

// Whether the pattern, in which '*' stands for any characters, matches the whole text.
// O(pattern x text).
bool MatchesPattern(absl::string_view pattern, absl::string_view text);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_NAME_PATTERN_H_
