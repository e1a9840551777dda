// Runs an original and a rewritten program, and compares what they compute.
//
// The original runs on one rank with the global batch, the rewritten program on its ranks, each
// with its part. Both start from generated values. Sums of these are the same in any order, as far
// as the ops allow it: parameters and data are small integers, possibly divided by a power of two;
// learning rates are the power of two nearest to that of the startup program; the batch of each
// rank is a power of two. A program of products, sums and means is then bit-identical. If results
// are rounded (softmax, roots, division by 3 ranks), sums depend on their order. Equal then means:
// within kNumericTolerance of the largest element of the variable, or kHalfTolerance or
// kBrainHalfTolerance where a program has variables of such a type.
//
// Some optimizers amplify rounding: adam's first step is lr g / (|g| + 1e-8), even if g is rounding
// of the size 1e-8. The original itself shows how much: it also runs with its batch in two other
// orders, and kRoundingFactor times that difference is allowed. A difference of more than
// kMaxNumericTolerance, or that of a 16-bit type, is never accepted.
//
// Rounding is no reason for ranks to disagree: the result of one collective, and everything
// computed from it, has the same bits on all ranks. So parameters and optimizer states must be
// bit-identical on all ranks.
//
// This check covers programs that a proof over expressions
// (transpiler/verifier/equivalence/equivalence.h) cannot handle. It holds for the numbers of this
// run only. It misses errors without effect on them: a race that does not happen, or a missing
// division by the number of ranks before clipping by norm, which compensates for it. The layers
// that do not run the program find both.
#ifndef WEFT_TOOLS_NUMERIC_NUMERIC_CHECK_H_
#define WEFT_TOOLS_NUMERIC_NUMERIC_CHECK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "proto/feed_layout.h"
#include "proto/program_pair.h"
#include "tools/numeric/report.h"

namespace weft {

struct NumericOptions {
  const KernelTable* kernels = nullptr;  // required
  int nranks = 2;
  int64_t steps = 2;
  FeedLayouts feeds = {};  // of data variables; those of others follow from the declarations
  double timeout_s = 60;   // for a rank that does not arrive at a collective
};

// States begin as `original.startup` leaves them, or at 0 if it is null; parameters are generated
// in any case.
//
// Errors begin with the program that they are about:
//   Unimplemented       ops without a kernel; an element type for which no values are generated
//   FailedPrecondition  the dimension of data that is split is fixed, so that the original cannot
//                       take the batches of all ranks; the rewritten program has lost a variable;
//                       no parameter changes, or no variable can be compared
//   ResourceExhausted   more than kMaxNumericElements (values.h) to generate
// and the errors of a run (executor/run/runner.h). Takes as long as that many steps of the
// rewritten program, and three times those of the original.
absl::StatusOr<NumericReport> CheckNumerically(const ConstProgramPair& original,
                                               const ConstProgramPair& rewritten,
                                               const NumericOptions& options);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_NUMERIC_CHECK_H_
