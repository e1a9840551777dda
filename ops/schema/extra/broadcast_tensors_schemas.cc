// Several tensors repeated to common dims.
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// All repeated to one shape.
absl::Status InferBroadcastTensors(InferContext& context) {
  Dims dims;
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    const absl::optional<Dims> both = BroadcastDims(dims, x->dims);
    if (!both.has_value()) {
      return context.InputError(
          "X", i, absl::StrCat("dimensions that broadcast with ", DimsToString(dims)));
    }
    dims = *both;
  }
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    context.SetOutput("Out", i, {context.Input("X", i)->dtype, dims});
  }
  return absl::OkStatus();
}

// Each vector X[i] gives dimension i of all outputs.
absl::Status InferMeshgrid(InferContext& context, const char* out) {
  Dims dims;
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() > 1) return context.InputError("X", i, "one dimension");
    dims.push_back(x->dims.empty() ? 1 : x->dims[0]);
  }
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    context.SetOutput(out, i, {context.Input("X", i)->dtype, dims});
  }
  return absl::OkStatus();
}

}  // namespace

void AddBroadcastTensorsSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("broadcast_tensors", "X* -> Out*")
                  .Infer(InferBroadcastTensors)
                  .Batch({batch::Elementwise})
                  .Pir("(input:X)"),
              GradOfX());
  schemas->Add(OpSchema("meshgrid", "X* -> Out*")
                   .Infer([](InferContext& context) { return InferMeshgrid(context, "Out"); })
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(inputs:X)"));
  // Paddle 2 writes outputs@GRAD, Paddle 3 Out@GRAD.
  schemas->Add(OpSchema("meshgrid_grad", "Out@GRAD*?, X*, outputs@GRAD*? -> X@GRAD*")
                   .Infer(GradOf([](InferContext& context) -> absl::Status {
                     WEFT_RETURN_IF_ERROR(InferMeshgrid(context, "Out"));
                     return InferMeshgrid(context, "outputs");
                   })));
}

}  // namespace weft
