// Kronecker products.
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Every element of X times all of Y.
absl::Status InferKron(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (x == nullptr || y == nullptr) return absl::OkStatus();
  Dims a = x->dims, b = y->dims;
  while (a.size() < b.size()) a.insert(a.begin(), 1);
  while (b.size() < a.size()) b.insert(b.begin(), 1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = MulDim(a[i], b[i]);
  context.SetOutput("Out", {x->dtype, a});
  return absl::OkStatus();
}

}  // namespace

void AddKronSchemas(OpSchemaTable* schemas) {
  const GradSlots xy_grad = {{"X", "Y"}, {"Out"}, {"X", "Y"}};
  AddWithGrad(
      schemas,
      OpSchema("kron").In("X").In("Y").Out("Out").Infer(InOrder({SameDType("X", "Y"), InferKron})),
      xy_grad);
}

}  // namespace weft
