// The largest of each group of channels.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferMaxout(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", x.dims.size()));
  const int64_t groups = context.attrs().Int("groups");
  if (groups < 1 || (x.dims[axis] != -1 && x.dims[axis] % groups != 0)) {
    return context.AttrError("groups", absl::StrCat("a divisor of ", x.dims[axis]),
                             absl::StrCat(groups));
  }
  TensorType out = x;
  if (out.dims[axis] != -1) out.dims[axis] /= groups;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddMaxoutSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("maxout", "X -> Out")
                  .Attr("axis", 1)
                  .RequiredAttr("groups", 1)
                  .Infer(IfKnown("X", InferMaxout))
                  .Batch({batch::Rows({"X"})})
                  .Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
