// Samples of a relaxed categorical distribution.
#include <utility>

#include "base/status_macros.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferGumbelSoftmax(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const int64_t axis = context.attrs().Int("axis");
  if (!x->dims.empty() || (axis != 0 && axis != -1)) {
    WEFT_RETURN_IF_ERROR(ResolveAxis(context, "axis", axis, x->dims.size()).status());
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

}  // namespace

void AddGumbelSoftmaxSchemas(OpSchemaTable* schemas) {
  OpSchema gumbel = OpSchema("gumbel_softmax")
                        .In("X")
                        .Out("Out")
                        .Attr("axis", -1)
                        .Attr("hard", false)
                        .Attr("temperature", 1.0f)
                        .With(Trait::kSideEffect)
                        .Infer(InferGumbelSoftmax);
  schemas->Add(GradSchema(gumbel, "gumbel_softmax_grad", {{"Out"}, {"Out"}, {"X"}},
                          InOrder({SameType("Out", "Out@GRAD"), OutputsLike("Out")})));
  schemas->Add(std::move(gumbel));
}

}  // namespace weft
