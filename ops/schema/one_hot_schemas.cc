// Indices as one-hot vectors.
#include <utility>

#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// `first_dims`: those of the result before the classes.
absl::Status InferClasses(InferContext& context, Dims first_dims) {
  if (HasAttrInput(context)) return absl::OkStatus();
  TensorType out = {DType::kFloat32, std::move(first_dims)};
  WEFT_ASSIGN_OR_RETURN(out.dtype, DTypeFromAttr(context, "dtype"));
  WEFT_RETURN_IF_ERROR(CheckPositive(context, {"depth"}));
  out.dims.push_back(context.attrs().Int("depth"));
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferOneHotV2(InferContext& context, const TensorType& x) {
  return InferClasses(context, x.dims);
}

// The last dimension of X is 1.
absl::Status InferOneHot(InferContext& context, const TensorType& x) {
  if (x.dims.empty() || !DimFits(x.dims.back(), 1)) {
    return context.InputError("X", "a last dimension of 1");
  }
  return InferClasses(context, Dims(x.dims.begin(), x.dims.end() - 1));
}

}  // namespace

void AddOneHotSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("one_hot_v2", "X, depth_tensor{depth} -> Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1)
                   .Attr("dtype", kFp32)
                   .Infer(IfKnown("X", InferOneHotV2))
                   .Batch({batch::Lookup("X")})
                   .Pir("one_hot(x, num_classes:@depth)"));
  schemas->Add(OpSchema("one_hot", "X, depth_tensor{depth} -> Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1)
                   .Attr("dtype", kFp32)
                   .Infer(IfKnown("X", InferOneHot))
                   .Batch({batch::NotLast("X")}));
}

}  // namespace weft
