#include "transpiler/passes/gradient_scale.h"

#include "absl/status/status.h"

namespace weft {

void BindGradientScale(OptionBinder& bind, GradientScale* field) {
  bind.Choice("scale", field, "who divides by the number of ranks",
              {{"auto", GradientScale::kAuto},
               {"loss_grad", GradientScale::kLossGrad},
               {"avg", GradientScale::kAvg},
               {"none", GradientScale::kNone}});
}

absl::StatusOr<GradientScale> Resolve(GradientScale scale, const Participants& participants) {
  const bool known = participants.nranks().has_value();
  if (scale == GradientScale::kAuto) {
    return known ? GradientScale::kLossGrad : GradientScale::kAvg;
  }
  if (scale == GradientScale::kLossGrad && !known) {
    return absl::InvalidArgumentError(
        "scale loss_grad divides by the number of ranks, which is unknown; give the number of "
        "ranks or the endpoints, or use scale avg");
  }
  return scale;
}

}  // namespace weft
