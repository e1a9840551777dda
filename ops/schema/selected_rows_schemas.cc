// SelectedRows made unique, and taken as a tensor.
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Rows of X, as a dense tensor: how many is not known.
absl::Status InferRowValues(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr || x->dims.empty()) return absl::OkStatus();
  TensorType out = {x->dtype, x->dims};
  out.dims[0] = -1;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddSelectedRowsSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("merge_selected_rows").In("X").Out("Out").Infer(OutputsLike("X")));
  schemas->Add(OpSchema("get_tensor_from_selected_rows").In("X").Out("Out").Infer(InferRowValues));
}

}  // namespace weft
