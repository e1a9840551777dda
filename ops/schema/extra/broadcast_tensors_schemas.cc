// Several tensors repeated to common dims.
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/out_dims.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;
constexpr int kDuplicable = OpSchema::kDuplicable;

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

// Vectors, each along a dimension of its own.
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
              OpSchema("broadcast_tensors")
                  .In("X", kDuplicable)
                  .Out("Out", kDuplicable)
                  .Infer(InferBroadcastTensors),
              GradOfX());
  schemas->Add(OpSchema("meshgrid")
                   .In("X", kDuplicable)
                   .Out("Out", kDuplicable)
                   .Infer([](InferContext& context) { return InferMeshgrid(context, "Out"); }));
  schemas->Add(
      OpSchema("meshgrid_grad")
          .In("X", kDuplicable)
          .In("outputs@GRAD", kDuplicable)
          .Out("X@GRAD", kDuplicable)
          .Infer(GradOf([](InferContext& context) { return InferMeshgrid(context, "outputs"); })));
}

}  // namespace weft
