#include "transpiler/passes/gradient_scale.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/op_role.h"

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

absl::Status RefuseScaledLossGradient(const Program& program) {
  std::vector<bool> is_loss_grad(program.symbols().size(), false);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (IsLossGrad(op)) {
      for (Symbol symbol : op.output_args()) is_loss_grad[symbol.value()] = true;
      continue;
    }
    if (!IsBackward(op) || op.input_args().size() != 1 || op.output_args().size() != 1) continue;
    const Symbol grad = op.output_args()[0];
    if (op.input_args()[0] != grad || !is_loss_grad[grad.value()]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " rewrites the loss gradient ", program.name(grad),
        " in place: it is divided already; use scale none if that was your own doing"));
  }
  return absl::OkStatus();
}

}  // namespace weft
