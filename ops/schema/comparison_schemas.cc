// Tests of single elements.
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
  for (const char* type : {"isfinite_v2", "isinf_v2", "isnan_v2"}) {
    schemas->Add(OpSchema(type, "X -> Out").Infer(IfKnown("X", InferEachAnswer)));
  }
  for (const char* type : {"isfinite", "isinf", "isnan"}) {
    schemas->Add(OpSchema(type, "X -> Out").Infer(InferOneAnswer));
  }
}

}  // namespace weft
