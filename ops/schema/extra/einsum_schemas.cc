// Sums of products in index notation.
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/einsum.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_context.h"

namespace weft {
namespace {

// InnerCache keeps the operands: the gradient op reads nothing else of them. InnerCache and XShape
// stay unset: Paddle's programs declare them without dims.
absl::Status InferEinsum(InferContext& context) {
  std::vector<Dims> dims;
  for (size_t i = 0; i < context.NumInputs("Operands"); ++i) {
    const TensorType* operand = context.Input("Operands", i);
    if (operand == nullptr) return absl::OkStatus();
    if (operand->dtype != context.Input("Operands")->dtype) {
      return context.InputError("Operands", i, "one element type");
    }
    dims.push_back(operand->dims);
  }
  WEFT_ASSIGN_OR_RETURN(const Einsum einsum, ParseEinsum(context.attrs().String("equation"), dims));
  if (!dims.empty()) {
    context.SetOutput("Out", {context.Input("Operands")->dtype, einsum.OutDims()});
  }
  return absl::OkStatus();
}

}  // namespace

void AddEinsumSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("einsum", "Operands* -> InnerCache*?~, Out, XShape*?~")
                   .RequiredAttr("equation", std::string())
                   .Infer(InferEinsum)
                   .Batch({batch::Einsum, Powers::kProduct})
                   .Pir("-> out, inner_cache, xshape", "(x_shape!, inner_cache, out_grad)"));
  schemas->Add(OpSchema("einsum_grad", "InnerCache*, Out@GRAD, x_shape*? -> Operands@GRAD*?")
                   .RequiredAttr("equation", std::string())
                   .Infer([](InferContext&) { return absl::OkStatus(); }));
}

}  // namespace weft
