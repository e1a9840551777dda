// Local response normalization.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Normalizes by the squares of neighboring channels, which MidOut holds.
absl::Status CheckLrn(InferContext& context) {
  const int64_t n = context.attrs().Int("n");
  if (n < 1 || n % 2 == 0) return context.AttrError("n", "an odd number", absl::StrCat(n));
  const TensorType* x = context.Input("X");
  if (x == nullptr || x->dims.size() == 4) return absl::OkStatus();
  return context.InputError("X", "four dimensions");
}

}  // namespace

void AddLrnSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("lrn", "X -> MidOut, Out")
                  .Attr("alpha", 1e-4f)
                  .Attr("beta", 0.75f)
                  .Attr("data_format", "NCHW")
                  .Attr("k", 2.0f)
                  .Attr("n", 5)
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder({CheckLrn, Like("X", {"MidOut", "Out"})}))
                  .Batch({batch::Rows({"X"})}),
              {{"MidOut", "Out", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
