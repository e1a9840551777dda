// Who divides the sum of the ranks' gradients by their number.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENT_SCALE_H_
#define WEFT_TRANSPILER_PASSES_GRADIENT_SCALE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/option_binder.h"
#include "proto/program.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/cluster.h"

namespace weft {

enum class GradientScale {
  kAuto,      // kLossGrad where the number of ranks is known and backward can still be told, else
              // kAvg
  kLossGrad,  // the loss's gradient is divided before backward: all gradients follow
  kAvg,       // the reduction averages
  kNone,      // nobody: gradients are summed
};

void BindGradientScale(OptionBinder& bind, GradientScale* field);

// What a reduction under this scale claims.
Claims::Gradients GradientsUnder(GradientScale scale);

// Who divides where the loss's gradient may still be divided: replaces kAuto. InvalidArgument for
// kLossGrad without a number of ranks.
absl::StatusOr<GradientScale> Resolve(GradientScale scale, const Cluster& cluster);

// Whether a reduction of gradients has to average (else it sums), which follows from what the
// program does already: kAuto averages unless the gradient of every loss has been divided by the
// number of ranks. FailedPrecondition, naming the op, where dividing would be done twice, never, or
// for another number of ranks. O(ops).
absl::StatusOr<bool> ReductionAverages(GradientScale scale, const Program& program,
                                       const Cluster& cluster);

// FailedPrecondition, naming the op, where one of backward role rewrites the gradient of a loss in
// place, as a division by the number of ranks does: dividing again would make all gradients too
// small. O(ops).
absl::Status RefuseScaledLossGradient(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENT_SCALE_H_
