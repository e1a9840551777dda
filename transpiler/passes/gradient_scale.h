// Who divides the sum of the ranks' gradients by their number.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENT_SCALE_H_
#define WEFT_TRANSPILER_PASSES_GRADIENT_SCALE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/program.h"
#include "transpiler/pipeline/options.h"
#include "transpiler/pipeline/participants.h"

namespace weft {

enum class GradientScale {
  kAuto,      // kLossGrad where the number of ranks is known, else kAvg
  kLossGrad,  // the loss's gradient is divided before backward: all gradients follow
  kAvg,       // the reduction averages
  kNone,      // nobody: gradients are summed
};

void BindGradientScale(OptionBinder& bind, GradientScale* field);

// Replaces kAuto. InvalidArgument for kLossGrad without a number of ranks.
absl::StatusOr<GradientScale> Resolve(GradientScale scale, const Participants& participants);

// FailedPrecondition, naming the op, where one of backward role rewrites the gradient of a loss in
// place, as a division by the number of ranks does: dividing again would make all gradients too
// small. O(ops).
absl::Status RefuseScaledLossGradient(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENT_SCALE_H_
