// Convolution along time that looks ahead.
#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// X is [batch, time, features]; Filter has a row for each step of time that is looked ahead, the
// present one first.
absl::Status InferRowConv(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* filter = context.Input("Filter");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 3) return context.InputError("X", "[batch, time, features]");
  if (filter != nullptr && !DimsFit(filter->dims, {-1, x->dims[2]})) {
    return context.InputError("Filter", absl::StrCat("rows of ", x->dims[2], " features"));
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

}  // namespace

void AddRowConvSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("row_conv")
                  .In("Filter")
                  .In("X")
                  .Out("Out")
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder({SameDType("X", "Filter"), InferRowConv})),
              {{"Filter", "X"}, {"Out"}, {"Filter", "X"}});
}

}  // namespace weft
