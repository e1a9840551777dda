// Softmax and its logarithm.
#include <utility>

#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferLogSoftmaxGrad(InferContext& context) {
  const TensorType* out = context.Input("Out");
  if (out == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(AxisFromAttr(context, "axis", out->dims).status());
  context.SetOutput("X@GRAD", *out);
  return absl::OkStatus();
}

absl::Status CheckSoftmaxAxis(InferContext& context) {
  const char* const slot = context.HasInput("X") ? "X" : "Out";
  const TensorType* type = context.Input(slot);
  if (type == nullptr) return absl::OkStatus();
  return ResolveAxis(context, "axis", context.attrs().Int("axis"), type->dims.size()).status();
}

}  // namespace

void AddSoftmaxSchemas(OpSchemaTable* schemas) {
  OpSchema log_softmax =
      OpSchema("log_softmax").In("X").Out("Out").Attr("axis", -1).Infer(LikeXAlongAxis("axis"));
  schemas->Add(GradSchema(log_softmax, "log_softmax_grad", {{"Out"}, {"Out"}, {"X"}},
                          InOrder({SameType("Out", "Out@GRAD"), InferLogSoftmaxGrad})));
  schemas->Add(std::move(log_softmax));
  schemas->Add(OpSchema("softmax")
                   .In("X")
                   .Out("Out")
                   .Attr("axis", -1)
                   .Infer(InOrder({CheckSoftmaxAxis, OutputsLike("X")})));
  schemas->Add(
      OpSchema("softmax_grad")
          .In("Out")
          .In("Out@GRAD")
          .Out("X@GRAD")
          .Attr("axis", -1)
          .Infer(InOrder({CheckSoftmaxAxis, SameType("Out", "Out@GRAD"), OutputsLike("Out")})));
}

}  // namespace weft
