// Copies: of another element type, in another memory, or the same.
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferCast(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const int64_t number = context.attrs().Int("out_dtype");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (!dtype.has_value()) {
    return context.AttrError("out_dtype", "the number of an element type", absl::StrCat(number));
  }
  context.SetOutput("Out", {*dtype, x->dims, x->kind});
  return absl::OkStatus();
}

constexpr int kOptional = OpSchema::kOptional;
constexpr int kDuplicable = OpSchema::kDuplicable;

}  // namespace

void AddCopySchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("cast")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("in_dtype", static_cast<int>(DType::kFloat32))
                   .RequiredAttr("out_dtype", static_cast<int>(DType::kFloat32))
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(InferCast));
  schemas->Add(OpSchema("assign")
                   .In("X", kOptional)
                   .Out("Out")
                   .With(Trait::kElementwise)
                   .With(Trait::kLinear)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  // Copies to another place (0 host memory, 1 device memory, ...).
  schemas->Add(OpSchema("memcpy")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("dst_place_type", 0)
                   .With(Trait::kElementwise)
                   .With(Trait::kLinear)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("share_data").In("X").Out("Out").Infer(OutputsLike("X")));
}

}  // namespace weft
