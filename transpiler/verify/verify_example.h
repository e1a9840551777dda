// What the verifier says of the example of a rule.
#ifndef WEFT_TRANSPILER_VERIFY_VERIFY_EXAMPLE_H_
#define WEFT_TRANSPILER_VERIFY_VERIFY_EXAMPLE_H_

#include "absl/status/statusor.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

// Verifies the example for 2 ranks, against its original where it has one. InvalidArgument where a
// text is no program. To print what is found: ToString(finding, !rule.ranks_differ()).
absl::StatusOr<Findings> VerifyExample(const Rule& rule);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_VERIFY_EXAMPLE_H_
