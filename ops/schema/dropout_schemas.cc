// Dropout.
#include <utility>

#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional, kLooseType = OpSchema::kLooseType;

absl::Status InferDropout(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  context.SetOutput("Out", *x);
  context.SetOutput("Mask", {DType::kUint8, x->dims});
  return absl::OkStatus();
}

OpSchema WithDropoutAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("fix_seed", false)
      .Attr("seed", 0)
      .Attr("dropout_implementation", "downgrade_in_infer")
      .Attr("dropout_prob", 0.5f)
      .Attr("is_test", false);
}

}  // namespace

void AddDropoutSchemas(OpSchemaTable* schemas) {
  schemas->Add(WithDropoutAttrs(OpSchema("dropout")
                                    .In("Seed", kOptional)
                                    .In("X")
                                    .Out("Mask", kOptional)
                                    .Out("Out")
                                    .With(Trait::kSideEffect)
                                    .Infer(InferDropout)));
  schemas->Add(WithDropoutAttrs(
      OpSchema("dropout_grad")
          .In("Mask", kOptional)
          .In("Out@GRAD")
          .Out("X@GRAD")
          .With(Trait::kElementwise)
          .With(Trait::kRowSplittable)
          .Infer(InOrder({SameDims("Out@GRAD", "Mask"), OutputsLike("Out@GRAD")}))));
  schemas->Add(OpSchema("seed")
                   .Out("Out")
                   .Attr("seed", 0)
                   .With(Trait::kSideEffect)
                   .Infer([](InferContext& context) {
                     context.SetOutput("Out", {DType::kInt32, {1}});
                     return absl::OkStatus();
                   }));
}

}  // namespace weft
