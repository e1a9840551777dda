// Program text before and after a rewrite as one text. A line with margin "-" stands before the
// rewrite alone, one with "+" after it alone, others in both:
//
//     Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
//   - Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
//   + Out=[w@GRAD] = relu(X=[x]) role=backward
#ifndef WEFT_TRANSPILER_TESTING_TEXT_EDITS_H_
#define WEFT_TRANSPILER_TESTING_TEXT_EDITS_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::testing {

// Whether a line has a margin.
bool HasMargins(absl::string_view text);

std::string TextBefore(absl::string_view edits);
std::string TextAfter(absl::string_view edits);

// The names of lines "- var NAME, NAME : TYPE", but for those of such lines with "+". The type may
// be left out.
std::set<std::string> ErasedVars(absl::string_view edits);

// `text`, edited: lines that `edits` does not list stay, and added lines follow the listed line
// before them. Of equal lines, the first is meant. "- var" lines may stand anywhere, and may name
// variables that `text` does not declare.
// InvalidArgument for a listed line that `text` does not have there.
absl::StatusOr<std::string> Edited(absl::string_view text, absl::string_view edits);

// The lines of both texts, with margins; empty if they are equal.
std::string LineDiff(absl::string_view before, absl::string_view after);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_TEXT_EDITS_H_
