// Convolution along time that looks ahead.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// X is [batch, time, features]; before version 2.5 also [time of all sequences, features], with
// level-of-detail offsets. Filter has a row for the present time step and for each one ahead.
absl::Status CheckRowConv(InferContext& context, const TensorType& x) {
  const TensorType* filter = context.Input("Filter");
  const bool has_offsets = x.dims.size() == 2 && IsBefore(context.attrs().version(), kPaddle2_5);
  if (x.dims.size() != 3 && !has_offsets) {
    return context.InputError("X", "[batch, time, features]");
  }
  if (filter != nullptr && !DimsFit(filter->dims, {-1, x.dims.back()})) {
    return context.InputError("Filter", absl::StrCat("rows of ", x.dims.back(), " features"));
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
