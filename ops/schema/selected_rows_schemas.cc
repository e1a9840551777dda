// Row-sparse tensors made unique, and converted to dense ones.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The rows of X as a dense tensor; their number is unknown.
absl::Status InferRowValues(InferContext& context, const TensorType& x) {
  if (x.dims.empty()) return absl::OkStatus();
  TensorType out = {x.dtype, x.dims};
  out.dims[0] = -1;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddSelectedRowsSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("merge_selected_rows", "X -> Out")
                   .Infer(OutputsLike("X"))
                   .Algebra(Algebra::kCopy)
                   .Rows(RowsRule::kMerges)
                   .Batch(batch::Unrelated(batch::kRowsOfGradient)));
  schemas->Add(OpSchema("get_tensor_from_selected_rows", "X -> Out")
                   .Infer(IfKnown("X", InferRowValues))
                   .Rows(RowsRule::kTakes)
                   .Batch(batch::Unrelated(batch::kRowsOfGradient)));
}

}  // namespace weft
