// Layer 3, part 3: is what sparsified gradients send and keep right?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RESIDUALS_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RESIDUALS_H_

#include "ops/analysis/values/rank_values.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks ops that sparsify gradients. The variables in which they keep, from step to step, the
// elements that they did not send (W319): each is persistable, begins with zeros, and belongs to
// one op, for one gradient. What they send (W320): different gradients, of which the op that makes
// tensors of the rows gives the same, in order. `options`: those of RankValues::Of the main
// program. O(arguments of both programs).
void CheckSparsifiedGradients(const ConstProgramPair& programs, const RankValuesOptions& options,
                              ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RESIDUALS_H_
