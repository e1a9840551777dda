// Questions to single elements.
#include "ops/schema/families.h"
#include "ops/schema/infer_context.h"

namespace weft {
namespace {

absl::Status InferQuestion(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x != nullptr) context.SetOutput("Out", {DType::kBool, x->dims});
  return absl::OkStatus();
}

// One answer for all elements.
absl::Status InferAnyQuestion(InferContext& context) {
  context.SetOutput("Out", {DType::kBool, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddComparisonSchemas(OpSchemaTable* schemas) {
  for (const char* type : {"isfinite_v2", "isinf_v2", "isnan_v2"}) {
    schemas->Add(OpSchema(type).In("X").Out("Out").Infer(InferQuestion));
  }
  for (const char* type : {"isfinite", "isinf", "isnan"}) {
    schemas->Add(OpSchema(type).In("X").Out("Out").Infer(InferAnyQuestion));
  }
}

}  // namespace weft
