// Loss scaling of mixed-precision training.
#include "ops/schema/batch_rule_functions.h"
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
                   .Infer(InferCheckFiniteAndUnscale)
                   .Batch({batch::Unscale, Powers::kOwn})
                   .Pir("check_finite_and_unscale_(x, scale)"));
  schemas->Add(OpSchema("update_loss_scaling", "FoundInfinite, InBadSteps, InGoodSteps")
                   .LossScaleIn("PrevLossScaling")
                   .In("StopUpdate?, X*")
                   .Out("LossScaling=PrevLossScaling, Out*=X, OutBadSteps=InBadSteps, "
                        "OutGoodSteps=InGoodSteps")
                   .RequiredAttr("decr_every_n_nan_or_inf", 1)
                   .RequiredAttr("decr_ratio", 0.0f)
                   .RequiredAttr("incr_every_n_steps", 1)
                   .RequiredAttr("incr_ratio", 0.0f)
                   .Attr("stop_update", false)
                   .Batch({batch::UpdateLossScale, Powers::kOwn})
                   .Pir("update_loss_scaling_(x, found_infinite, prev_loss_scaling, in_good_steps, "
                        "in_bad_steps, @stop_update)"));
}

}  // namespace weft
