// Sums and products of the elements up to each one along a dimension.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

OpSchema Cumulative(const char* type) {
  return OpSchema(type, "X -> Out")
      .Attr("axis", -1)
      .Attr("exclusive", false)
      .Attr("flatten", false)
      .Attr("reverse", false)
      .Infer(LikeXAlongAxis("axis"));
}

}  // namespace

void AddCumulativeSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              Cumulative("cumsum")
                  .With(Trait::kLinear)
                  .Batch({batch::Along("X", "axis", "flatten"), Powers::kFirst})
                  .Pir("(x, @axis)"),
              {{"X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              Cumulative("logcumsumexp").Batch({batch::Along("X", "axis", "flatten")}).Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("cumprod", "X -> Out")
                  .RequiredAttr("dim", 0)
                  .Infer(LikeXAlongAxis("dim"))
                  .Batch({batch::Along("X", "dim")})
                  .Pir(),
              {{"Out", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
