#ifndef WEFT_TOOLS_INSPECT_RULE_EXPLANATION_H_
#define WEFT_TOOLS_INSPECT_RULE_EXPLANATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// What a rule of the verifier means, how to mend it, a program that breaks it, and what the
// verifier says about the program. NotFound if there is no such rule.
absl::StatusOr<std::string> ExplainRule(absl::string_view id);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_RULE_EXPLANATION_H_
