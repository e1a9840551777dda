// Does a rewritten program compute what the original computes? Runs both and compares.
//
// The original runs on one rank with the batch of all ranks, the rewritten program on its ranks,
// each with its part. What both start from is made up so that sums come out the same in any order
// wherever the ops allow it: parameters and data are small integers, or such divided by a power of
// two; learning rates are the power of two that is nearest to that of the startup program; a batch
// is a power of two for each rank. A program of products, sums and means is then equal bit by bit.
// Where results are rounded (softmax, roots, division by 3 ranks), sums depend on their order, and
// equal means: within kNumericTolerance of the largest element of the variable.
//
// Some optimizers make more of it: adam's first step is lr g / (|g| + 1e-8), whatever the rounding
// of a g of 1e-8. How much shows in the original itself, which runs with its batch in two other
// orders besides: kRoundingFactor times that difference is allowed. What differs by more than
// kMaxNumericTolerance is not called equal, whatever the original does.
//
// Rounding is no reason for ranks to disagree: what one collective gives, and what is computed from
// it, has the same bits on all of them. So parameters and states of optimizers have to be the same
// bits on all ranks, too.
//
// This shows what a proof over expressions (transpiler/verify/equivalence.h) does not get through;
// it holds for the numbers of this run only. What has no effect on them is not seen: a race that
// does not happen, or a missing division by the number of ranks before clipping by norm, which
// makes up for it. Layers that run nothing find both.
#ifndef WEFT_TOOLS_NUMERIC_NUMERIC_CHECK_H_
#define WEFT_TOOLS_NUMERIC_NUMERIC_CHECK_H_

#include "absl/status/statusor.h"
#include "proto/program_pair.h"
#include "tools/numeric/report.h"
#include "tools/numeric/setting.h"

namespace weft {

// States begin as `original.startup` leaves them, or at 0 if it is null; parameters are made up in any
// case.
//
// Errors begin with the program that they are about:
//   Unimplemented       ops without a kernel; an element type that no values are made for
//   FailedPrecondition  the first dimension of data is fixed, so that the original cannot take the
//                       batches of all ranks; the rewritten program has lost a variable; no
//                       parameter changes, or no variable can be compared
//   ResourceExhausted   more than kMaxNumericElements (values.h) to make up
// and whatever stops a run (executor/runner.h).
// Takes as long as so many steps of the rewritten program, and three times those of the original.
absl::StatusOr<NumericReport> CheckNumerically(const ConstProgramPair& original,
                                               const ConstProgramPair& rewritten,
                                               const NumericOptions& options);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_NUMERIC_CHECK_H_
