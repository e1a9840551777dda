// Slices scaled down to a norm.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferRenorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const double p = context.attrs().Float("p");
  if (!(p > 0 && std::isfinite(p))) {
    return context.AttrError("p", "a number above 0", absl::StrCat(p));
  }
  if (x->dims.size() < 2) return context.InputError("X", "at least two dimensions");
  WEFT_RETURN_IF_ERROR(AxisFromAttr(context, "axis", x->dims).status());
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

}  // namespace

void AddRenormSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("renorm")
                  .In("X")
                  .Out("Out")
                  .RequiredAttr("axis", 0)
                  .RequiredAttr("max_norm", 0.0f)
                  .RequiredAttr("p", 0.0f)
                  .Infer(InferRenorm),
              {{"X"}, {"Out"}, {"X"}});
}

}  // namespace weft
