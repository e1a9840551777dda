// Elements selected by a mask, or by a triangle of a matrix.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckMask(const InferContext& context, const char* mask, const char* x) {
  const TensorType* type = context.Input(mask);
  const TensorType* like = context.Input(x);
  if (type == nullptr || like == nullptr) return absl::OkStatus();
  if (type->dtype == DType::kBool && DimsFit(type->dims, like->dims)) return absl::OkStatus();
  return context.InputError(mask, absl::StrCat("bool", DimsToString(like->dims)));
}

absl::Status InferWhere(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckMask(context, "Condition", "X"));
  if (const TensorType* x = context.Input("X")) context.SetOutput("Out", *x);
  return absl::OkStatus();
}

absl::Status InferWhereIndex(InferContext& context) {
  const TensorType* condition = context.Input("Condition");
  if (condition == nullptr) return absl::OkStatus();
  context.SetOutput("Out", {DType::kInt64, {-1, static_cast<int64_t>(condition->dims.size())}});
  return absl::OkStatus();
}

absl::Status InferMaskedSelect(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckMask(context, "Mask", "X"));
  if (const TensorType* x = context.Input("X")) context.SetOutput("Y", {x->dtype, {-1}});
  return absl::OkStatus();
}

OpSchema::InferFn Triangle(const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() < 2) return context.InputError(x_slot, "at least two dimensions");
    context.SetOutput(out_slot, *x);
    return absl::OkStatus();
  };
}

}  // namespace

void AddWhereSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("where")
                  .In("Condition")
                  .In("X")
                  .In("Y")
                  .Out("Out")
                  .With(Trait::kElementwise)
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder({SameType("X", "Y"), InferWhere})),
              {{"Condition", "X", "Y"}, {"Out"}, {"X", "Y"}});
  schemas->Add(OpSchema("where_index").In("Condition").Out("Out").Infer(InferWhereIndex));
  AddWithGrad(schemas,
              OpSchema("masked_select").In("Mask").In("X").Out("Y").Infer(InferMaskedSelect),
              {{"Mask", "X"}, {"Y"}, {"X"}});
  OpSchema triangle = OpSchema("tril_triu")
                          .In("X")
                          .Out("Out")
                          .Attr("diagonal", 0)
                          .Attr("lower", true)
                          .Infer(Triangle("X", "Out"));
  schemas->Add(
      GradSchema(triangle, "tril_triu_grad", {{}, {"Out"}, {"X"}}, Triangle("Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(triangle));
}

}  // namespace weft
