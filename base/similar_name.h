// Hints for names that do not exist.
#ifndef WEFT_BASE_SIMILAR_NAME_H_
#define WEFT_BASE_SIMILAR_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// "; did you mean fc_0.w_0?", with the candidate that differs least from `name`, the first of equal
// ones. Empty if all differ by more than a third of its letters. A letter that is missing, added,
// another or exchanged with the next counts once. O(letters of all candidates * those of `name`).
std::string DidYouMean(absl::string_view name, const std::vector<absl::string_view>& candidates);

}  // namespace weft

#endif  // WEFT_BASE_SIMILAR_NAME_H_
