#include "ops/schema/out_dims.h"

#include "base/status_macros.h"

namespace weft {

OpSchema::InferFn OutDims(DimsFn dims_of, const char* x_slot) {
  return [dims_of, x_slot](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    context.SetOutput("XShape", ToXShape(*x));
    // Attributes that are computed are not known here.
    for (const SlotSchema& slot : context.schema().inputs()) {
      if (slot.optional && context.HasInput(slot.name)) return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const Dims dims, dims_of(context, x->dims));
    context.SetOutput("Out", {x->dtype, dims});
    return absl::OkStatus();
  };
}

GradSlots GradOfX() { return {{"X"}, {"Out"}, {"X"}}; }

}  // namespace weft
