// Cross products.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The axis has three elements. 9 stands for the first axis that has.
absl::Status CheckCross(InferContext& context, const TensorType& x) {
  const int64_t dim = context.attrs().Int("dim");
  if (dim == 9) {
    if (absl::c_none_of(x.dims, [](int64_t size) { return DimFits(size, 3); })) {
      return context.InputError("X", "a dimension of size 3");
    }
  } else {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "dim", dim, x.dims.size()));
    if (!DimFits(x.dims[axis], 3)) {
      return context.InputError("X", absl::StrCat("size 3 of dimension ", axis));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddCrossSchemas(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("cross", "X, Y -> Out")
          .Attr("dim", 9)
          .Infer(InOrder({SameType("X", "Y"), IfKnown("X", CheckCross), Like("X", {"Out"})}))
          .Batch({batch::Cross, Powers::kProduct})
          .Pir("{axis=dim}"),
      {{"X", "Y"}, {"Out"}, {"X", "Y"}});
}

}  // namespace weft
