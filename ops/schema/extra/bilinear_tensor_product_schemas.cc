// Bilinear forms.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Out[b, k] = X[b] Weight[k] Y[b] + Bias[k].
absl::Status InferBilinear(InferContext& context, const TensorType& x, const TensorType& y) {
  const TensorType* weight = context.Input("Weight");
  if (weight == nullptr) return absl::OkStatus();
  if (x.dims.size() != 2) return context.InputError("X", "two dimensions");
  if (y.dims.size() != 2 || !DimFits(x.dims[0], y.dims[0])) {
    return context.InputError("Y", absl::StrCat("two dimensions, with ", x.dims[0], " rows"));
  }
  if (weight->dims.size() != 3 || !DimFits(weight->dims[1], x.dims[1]) ||
      !DimFits(weight->dims[2], y.dims[1])) {
    return context.InputError("Weight",
                              absl::StrCat("dimensions [-1, ", x.dims[1], ", ", y.dims[1], "]"));
  }
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Bias", {1, weight->dims[0]}));
  context.SetOutput("Out", {x.dtype, {x.dims[0], weight->dims[0]}});
  return absl::OkStatus();
}

}  // namespace

void AddBilinearTensorProductSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("bilinear_tensor_product", "Bias?, Weight, X, Y -> Out")
                  .Infer(IfKnown("X", "Y", InferBilinear))
                  .Batch({batch::Rows({"X", "Y"})})
                  .Pir("bilinear(x, y, weight, bias)"),
              {{"Weight", "X", "Y"}, {"Out"}, {"Bias", "Weight", "X", "Y"}});
}

}  // namespace weft
