// Elements rotated along a dimension.
#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::StatusOr<Dims> RolledDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> axes = context.attrs().Ints("axis");
  WEFT_RETURN_IF_ERROR(
      CheckSameLength(context, "shifts", std::max<size_t>(axes.size(), axes.empty() ? 1 : 0)));
  for (int64_t value : axes) {
    WEFT_RETURN_IF_ERROR(ResolveAxis(context, "axis", value, x.size()).status());
  }
  return x;
}

}  // namespace

void AddRollSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("roll", "ShiftsTensor{shifts}, X -> Out")
                  .Attr("axis", Longs{})
                  .Attr("shifts", Longs{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(RolledDims))
                  .Batch({batch::NotAlong("X", "axis"), Powers::kFirst})
                  .Pir("(x, @shifts)"),
              GradOfX());
}

}  // namespace weft
