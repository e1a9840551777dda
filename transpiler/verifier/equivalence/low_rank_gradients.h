// Layer 3, part 4: are gradients that travel as thin matrices what is sent and what is kept?
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_LOW_RANK_GRADIENTS_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_LOW_RANK_GRADIENTS_H_

#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks what Setting::low_rank says, if it does (W319). Each residual e is persistable and begins
// with zeros. From the first step on, and in no earlier one, it becomes g + e - s, where an
// optimizer takes s in place of the gradient g; each is the residual of another gradient. There,
//
//   q = orthonormal columns of (g + e) b, by op qr      b: a state, the residual's own
//   s = q (the next b)^T                                the next b = (g + e)^T q
//
// Layer 3 shows that q and the next b are of means over the ranks, and s equal on all ranks. Notes
// that steps differ from the step of one device (W714). Without a startup program, the first step
// is taken for right, which the note says. `options`: those of RankValues::Of the main program.
// O(arguments of both programs).
void CheckLowRankGradients(const ConstProgramPair& programs, const ProgramFacts& main,
                           const RankValuesOptions& options, ProgramRef ref, Findings* findings);

// For layer 6, which compares all that is no such gradient: where an optimizer takes s in place of
// g as W319 demands it, Select of both is g from here on, in the table of `options`, those of the
// walk to come. O(arguments).
void TakeWholeGradients(const ProgramFacts& main, const RankValuesOptions& options);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_LOW_RANK_GRADIENTS_H_
