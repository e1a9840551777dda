// Kronecker products.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Every element of X times all of Y.
absl::Status InferKron(InferContext& context, const TensorType& x, const TensorType& y) {
  Dims a = x.dims, b = y.dims;
  while (a.size() < b.size()) a.insert(a.begin(), 1);
  while (b.size() < a.size()) b.insert(b.begin(), 1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = MulDim(a[i], b[i]);
  context.SetOutput("Out", {x.dtype, a});
  return absl::OkStatus();
}

}  // namespace

void AddKronSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("kron", "X, Y -> Out")
                  .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferKron)}))
                  .Batch({batch::Kron, Powers::kProduct})
                  .Pir(),
              {{"X", "Y"}, {"Out"}, {"X", "Y"}});
}

}  // namespace weft
