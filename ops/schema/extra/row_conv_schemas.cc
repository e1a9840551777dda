// Convolution along time that looks ahead.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// X is [batch, time, features]. Filter has a row for the present time step and for each one ahead.
absl::Status CheckRowConv(InferContext& context, const TensorType& x) {
  const TensorType* filter = context.Input("Filter");
  if (x.dims.size() != 3) return context.InputError("X", "[batch, time, features]");
  if (filter != nullptr && !DimsFit(filter->dims, {-1, x.dims[2]})) {
    return context.InputError("Filter", absl::StrCat("rows of ", x.dims[2], " features"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddRowConvSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("row_conv", "Filter, X -> Out")
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder(
                      {SameDType("X", "Filter"), IfKnown("X", CheckRowConv), Like("X", {"Out"})}))
                  .Batch({batch::Rows({"X"}), Powers::kProduct}),
              {{"Filter", "X"}, {"Out"}, {"Filter", "X"}});
}

}  // namespace weft
