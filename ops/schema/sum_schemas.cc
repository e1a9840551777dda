// Sums of tensors, and scaling.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// All inputs have one shape. The sum is row-sparse if all inputs are.
absl::Status InferSum(InferContext& context, const TensorType& first) {
  TensorType out = first;
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    if (x->dtype != out.dtype || !DimsFit(x->dims, out.dims)) {
      return context.InputError("X", i, absl::StrCat(ToString(out), " as the others"));
    }
    for (size_t d = 0; d < out.dims.size(); ++d) out.dims[d] = std::max(out.dims[d], x->dims[d]);
    if (x->kind == TensorType::Kind::kDense) out.kind = TensorType::Kind::kDense;
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddSumSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("sum", "X* -> Out")
                   .With(Trait::kElementwise, Trait::kLinear, Trait::kRowSplittable)
                   .Infer(IfKnown("X", InferSum))
                   .Algebra(Algebra::kSum)
                   .Batch({batch::Sum, Powers::kTogether})
                   .Pir("add_n(inputs:X)"));
  // Switches of back ends, such as use_mkldnn, are here if Paddle's transpilers write them on ops
  // that they insert. So in other files.
  schemas->Add(OpSchema("scale", "BiasTensor^{bias}, ScaleTensor{scale}, X -> Out")
                   .AttrSincePaddle3("mkldnn_data_type", "float32")
                   .AttrSincePaddle3("onednn_data_type", "")
                   .AttrSincePaddle3("use_onednn", false)
                   .Attr("use_mkldnn", false)
                   .Attr("bias", 0.0f)
                   .Attr("bias_after_scale", true)
                   .Attr("scale", 1.0f)
                   .With(Trait::kElementwise, Trait::kRowSplittable)
                   .Infer(OutputsLike("X"))
                   .Algebra(Algebra::kScale)
                   .Pir("(x, @scale)")
                   .Pir("scale_(x, @scale)"));
  schemas->Add(OpSchema("increment", "X -> Out")
                   .Attr("step", 1.0f)
                   .With(Trait::kElementwise)
                   .Infer(OutputsLike("X"))
                   .Algebra(Algebra::kIncrement)
                   .Pir("increment_ {value=step}")
                   .Pir("{value=step}"));
}

}  // namespace weft
