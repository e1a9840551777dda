// Slices scaled down to a norm.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckRenorm(InferContext& context, const TensorType& x) {
  const double p = context.attrs().Float("p");
  if (!(p > 0 && std::isfinite(p))) {
    return context.AttrError("p", "a number above 0", absl::StrCat(p));
  }
  if (x.dims.size() < 2) return context.InputError("X", "at least two dimensions");
  return AxisFromAttr(context, "axis", x.dims).status();
}

}  // namespace

void AddRenormSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("renorm", "X -> Out")
                  .RequiredAttr("axis", 0)
                  .RequiredAttr("max_norm", 0.0f)
                  .RequiredAttr("p", 0.0f)
                  .Infer(InOrder({IfKnown("X", CheckRenorm), Like("X", {"Out"})}))
                  .Batch({batch::SlicesAlong("axis")})
                  .Pir(),
              {{"X"}, {"Out"}, {"X"}});
}

}  // namespace weft
