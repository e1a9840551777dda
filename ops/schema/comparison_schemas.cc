// Tests of single elements.
#include <string>

#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferEachAnswer(InferContext& context, const TensorType& x) {
  context.SetOutput("Out", {DType::kBool, x.dims});
  return absl::OkStatus();
}

// One answer for all elements.
absl::Status InferOneAnswer(InferContext& context) {
  context.SetOutput("Out", {DType::kBool, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddComparisonSchemas(OpSchemaTable* schemas) {
  for (const std::string name : {"isfinite", "isinf", "isnan"}) {
    schemas->Add(OpSchema(name + "_v2", "X -> Out")
                     .Infer(IfKnown("X", InferEachAnswer))
                     .Batch({batch::Elementwise})
                     .Pir(name));
    schemas->Add(OpSchema(name, "X -> Out~")  // Paddle 1 declares the type of X
                     .Infer(InferOneAnswer)
                     .Batch(batch::Unrelated(batch::kWholeResult)));
  }
}

}  // namespace weft
