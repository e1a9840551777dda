// Loss scaling of mixed-precision training.
#include "ops/schema/families.h"
#include "ops/schema/infer_context.h"

namespace weft {
namespace {

absl::Status InferCheckFiniteAndUnscale(InferContext& context) {
  context.SetOutput("FoundInfinite", {DType::kBool, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddAmpSchemas(OpSchemaTable* schemas) {
  // Searches all of X together for non-finite values.
  schemas->Add(OpSchema("check_finite_and_unscale")
                   .LossScaleIn("Scale")
                   .In("X*")
                   .Out("FoundInfinite, Out*=X")
                   .Infer(InferCheckFiniteAndUnscale));
  schemas->Add(OpSchema("update_loss_scaling", "FoundInfinite, InBadSteps, InGoodSteps")
                   .LossScaleIn("PrevLossScaling")
                   .In("StopUpdate?, X*")
                   .Out("LossScaling=PrevLossScaling, Out*=X, OutBadSteps=InBadSteps, "
                        "OutGoodSteps=InGoodSteps")
                   .RequiredAttr("decr_every_n_nan_or_inf", 1)
                   .RequiredAttr("decr_ratio", 0.0f)
                   .RequiredAttr("incr_every_n_steps", 1)
                   .RequiredAttr("incr_ratio", 0.0f)
                   .Attr("stop_update", false));
}

}  // namespace weft
