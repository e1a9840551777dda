// Indices as one-hot vectors.
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferOneHot(InferContext& context, const TensorType& x) {
  if (HasAttrInput(context)) return absl::OkStatus();
  TensorType out = {DType::kFloat32, x.dims};
  WEFT_ASSIGN_OR_RETURN(out.dtype, DTypeFromAttr(context, "dtype"));
  WEFT_RETURN_IF_ERROR(CheckPositive(context, {"depth"}));
  out.dims.push_back(context.attrs().Int("depth"));
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddOneHotSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("one_hot_v2", "X, depth_tensor{depth} -> Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1)
                   .Attr("dtype", kFp32)
                   .Infer(IfKnown("X", InferOneHot))
                   .Batch({batch::Lookup("X")})
                   .Pir("one_hot(x, num_classes:@depth)"));
}

}  // namespace weft
