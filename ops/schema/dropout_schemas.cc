// Dropout.
#include <utility>

#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferDropout(InferContext& context, const TensorType& x) {
  context.SetOutput("Out", x);
  context.SetOutput("Mask", {DType::kUint8, x.dims});
  return absl::OkStatus();
}

absl::Status InferSeed(InferContext& context) {
  context.SetOutput("Out", {DType::kInt32, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddDropoutSchemas(OpSchemaTable* schemas) {
  OpSchema dropout =
      OpSchema("dropout", "Seed?, X -> Mask?, Out")
          .Attr("fix_seed", false)
          .Attr("seed", 0)
          .Attr("dropout_implementation", "downgrade_in_infer",
                range::OneOf({"upscale_in_train", "downgrade_in_infer"}))
          .Attr("dropout_prob", 0.5f, range::Between(0, 1))
          .Attr("is_test", false)
          .With(Trait::kSideEffect)
          .Infer(IfKnown("X", InferDropout))
          .Batch({batch::Dropout, Powers::kOwn})
          .Pir("(x, seed_tensor:Seed, p:@dropout_prob) -> out, mask {mode=dropout_implementation}");
  schemas->Add(GradSchema(dropout, "dropout_grad", {{"Mask"}, {"Out"}, {"X"}, /*optional=*/false},
                          InOrder({SameDims("Out@GRAD", "Mask"), OutputsLike("Out@GRAD")}))
                   .With(Trait::kElementwise, Trait::kRowSplittable));
  schemas->Add(std::move(dropout));
  schemas->Add(OpSchema("seed", "-> Out")
                   .Attr("seed", 0)
                   .With(Trait::kSideEffect)
                   .Infer(InferSeed)
                   .Batch({batch::Seed, Powers::kOwn}));
}

}  // namespace weft
