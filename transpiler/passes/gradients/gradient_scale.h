// Where the sum of gradients over the ranks is divided by their number. Only the gradient of a loss
// tells whether the loss is a mean or a sum: after it, gradients of both kinds are added up. So in
// a program with both, the division goes to the gradients of the means, whatever the mode.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_SCALE_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_SCALE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "base/option_binder.h"
#include "proto/program.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

enum class GradientScale {
  kAuto,      // kNone for losses that are sums; kLossGrad if the number of ranks is known; kAvg.
              // For some sums: kLossGrad of the others. For groups of ranks, and for parameters on
              // servers, whose optimizers may add a weight decay first: kAvg or kNone
  kLossGrad,  // the loss's gradient is divided, and with it all gradients
  kAvg,       // the reduction averages
  kNone,      // gradients are summed and not divided
};

void BindGradientScale(OptionBinder& bind, GradientScale* field);

// The claim of a reduction with this scale.
Claims::Gradients GradientsUnder(GradientScale scale, const PassContext& context);

// Replaces kAuto where the loss's gradient is not divided yet. InvalidArgument for kLossGrad
// without a number of ranks, or with groups of ranks; FailedPrecondition if kAuto needs that.
absl::StatusOr<GradientScale> Resolve(GradientScale scale, const PassContext& context);

// Whether a reduction of gradients averages; else it sums. kAuto averages unless a loss is a sum,
// or the program divides the gradient of every loss by the number of ranks. FailedPrecondition,
// naming the op, if gradients would be divided twice, never, or by another number of ranks. O(ops).
absl::StatusOr<bool> ReductionAverages(GradientScale scale, const Program& program,
                                       const PassContext& context);

// FailedPrecondition, naming the op, if a backward op rewrites the gradient of a loss in place, and
// may divide it by the number of ranks: it says so (attribute nranks), or its factor does not tell.
// A second division would make all gradients too small. O(ops).
absl::Status RefuseScaledLossGradient(const Program& program, absl::optional<int> nranks);

// Whether the op makes the gradient of a loss, not from the gradient itself.
bool BeginsBackward(const Op& op);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_SCALE_H_
