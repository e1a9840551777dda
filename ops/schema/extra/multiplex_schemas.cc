// Each row from one of several tensors.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferMultiplex(InferContext& context, const TensorType& x) {
  const TensorType* ids = context.Input("Ids");
  if (x.dims.size() < 2) return context.InputError("X", "at least two dimensions");
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* other = context.Input("X", i);
    if (other != nullptr && *other != x) {
      return context.InputError("X", i, absl::StrCat(ToString(x), " as the others"));
    }
  }
  if (ids != nullptr &&
      (!IsIndex(ids->dtype) || ids->dims.empty() || !DimFits(Product(ids->dims), ids->dims[0]) ||
       (x.dims[0] != -1 && ids->dims[0] > x.dims[0]))) {
    return context.InputError("Ids", "a number for each of the first rows");
  }
  TensorType out = x;
  if (ids != nullptr) out.dims[0] = ids->dims[0];
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddMultiplexSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("multiplex", "Ids, X* -> Out")
                  .Infer(IfKnown("X", InferMultiplex))
                  .Batch({batch::Rows({"X", "Ids"})})
                  .Pir("(inputs:X, index:Ids)"),
              {{"Ids", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
