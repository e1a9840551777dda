// Histograms of integers.
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferBinCount(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckAtLeast(context, "minlength", 0, kMaxElements));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (!IsIndex(x->dtype) || x->dims.size() != 1) {
    return context.InputError("X", "one dimension of int64 or int32 numbers");
  }
  DType dtype = DType::kInt64;
  if (context.HasInput("Weights")) {
    const TensorType* weights = context.Input("Weights");
    if (weights == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckDims(context, "Weights", x->dims));
    dtype = weights->dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  }
  context.SetOutput("Out", {dtype, {-1}});
  return absl::OkStatus();
}

}  // namespace

void AddBincountSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("bincount", "Weights?, X -> Out")
                   .Attr("minlength", 0)
                   .Infer(InferBinCount)
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(x, weights, @minlength)"));
}

}  // namespace weft
