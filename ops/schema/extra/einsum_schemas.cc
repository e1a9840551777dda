// Sums of products in index notation.
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/schema/extra/einsum.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/out_dims.h"

namespace weft {
namespace {

// InnerCache keeps the operands, as the gradient op gets nothing else of them. Programs of Paddle
// declare it without their dims, so that nothing is said of it here; nor of XShape.
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
  schemas->Add(
      OpSchema("einsum")
          .In("Operands", OpSchema::kDuplicable)
          .Out("InnerCache", OpSchema::kOptional | OpSchema::kDuplicable | OpSchema::kLooseType)
          .Out("Out")
          .Out("XShape", OpSchema::kOptional | OpSchema::kDuplicable | OpSchema::kLooseType)
          .RequiredAttr("equation", std::string())
          .Infer(InferEinsum));
  schemas->Add(OpSchema("einsum_grad")
                   .In("InnerCache", OpSchema::kDuplicable)
                   .In("Out@GRAD")
                   .In("x_shape", OpSchema::kOptional | OpSchema::kDuplicable)
                   .Out("Operands@GRAD", OpSchema::kOptional | OpSchema::kDuplicable)
                   .RequiredAttr("equation", std::string())
                   .Infer([](InferContext&) { return absl::OkStatus(); }));
}

}  // namespace weft
