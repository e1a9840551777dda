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
  // Looks for non-finite values in all of X together.
  schemas->Add(OpSchema("check_finite_and_unscale")
                   .In("Scale", OpSchema::kLossScale)
                   .In("X", OpSchema::kDuplicable)
                   .Out("FoundInfinite")
                   .OutInPlace("Out", "X", OpSchema::kDuplicable)
                   .Infer(InferCheckFiniteAndUnscale));

  schemas->Add(OpSchema("update_loss_scaling")
                   .In("FoundInfinite")
                   .In("InBadSteps")
                   .In("InGoodSteps")
                   .In("PrevLossScaling", OpSchema::kLossScale)
                   .In("StopUpdate", OpSchema::kOptional)
                   .In("X", OpSchema::kDuplicable)
                   .OutInPlace("LossScaling", "PrevLossScaling")
                   .OutInPlace("Out", "X", OpSchema::kDuplicable)
                   .OutInPlace("OutBadSteps", "InBadSteps")
                   .OutInPlace("OutGoodSteps", "InGoodSteps")
                   .RequiredAttr("decr_every_n_nan_or_inf", 1)
                   .RequiredAttr("decr_ratio", 0.0f)
                   .RequiredAttr("incr_every_n_steps", 1)
                   .RequiredAttr("incr_ratio", 0.0f)
                   .Attr("stop_update", false));
}

}  // namespace weft
