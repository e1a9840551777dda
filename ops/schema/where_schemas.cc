// Elements selected by a mask, or by a triangle of a matrix.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The mask has the dimensions of X.
OpSchema::InferFn CheckMask(const char* mask) {
  return IfKnown(
      mask, "X",
      [=](InferContext& context, const TensorType& type, const TensorType& x) -> absl::Status {
        if (type.dtype == DType::kBool && DimsFit(type.dims, x.dims)) return absl::OkStatus();
        return context.InputError(mask, absl::StrCat("bool", DimsToString(x.dims)));
      });
}

absl::Status InferWhereIndex(InferContext& context, const TensorType& condition) {
  context.SetOutput("Out", {DType::kInt64, {-1, static_cast<int64_t>(condition.dims.size())}});
  return absl::OkStatus();
}

absl::Status InferMaskedSelect(InferContext& context, const TensorType& x) {
  context.SetOutput("Y", {x.dtype, {-1}});
  return absl::OkStatus();
}

// Out = X where the condition holds, Y elsewhere: linear in both together.
void Where(BatchContext& c) {
  const BatchRelation condition = c.In("Condition"), x = c.In("X"), y = c.In("Y");
  if (condition.power != 0 || x.power != y.power) return;
  if (condition.IsReplicated() && !x.IsSharded() && !y.IsSharded()) return c.SetAll(Join(x, y));
  for (const BatchRelation in : c.inputs()) {
    if (!in.IsReplicated() && !in.IsSharded()) return;
  }
  batch::Elementwise(c);
  c.MultiplyAll(x.power);
}

OpSchema::InferFn Triangle(const char* x_slot) {
  const auto check = [=](InferContext& context, const TensorType& x) -> absl::Status {
    if (x.dims.size() >= 2) return absl::OkStatus();
    return context.InputError(x_slot, "at least two dimensions");
  };
  return InOrder({IfKnown(x_slot, check), OutputsLike(x_slot)});
}

}  // namespace

void AddWhereSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("where", "Condition, X, Y -> Out")
                  .With(Trait::kElementwise, Trait::kRowSplittable)
                  .Infer(InOrder({SameType("X", "Y"), CheckMask("Condition"), Like("X", {"Out"})}))
                  .Algebra(Algebra::kMove)
                  .Batch({Where, Powers::kOwn})
                  .Pir(),
              {{"Condition", "X", "Y"}, {"Out"}, {"X", "Y"}});
  schemas->Add(OpSchema("where_index", "Condition -> Out")
                   .Infer(IfKnown("Condition", InferWhereIndex))
                   .Batch(batch::Unrelated(batch::kUnknownSize))
                   .Pir("nonzero(condition)"));
  AddWithGrad(schemas,
              OpSchema("masked_select", "Mask, X -> Y")
                  .Infer(InOrder({CheckMask("Mask"), IfKnown("X", InferMaskedSelect)}))
                  .Batch(batch::Unrelated(batch::kUnknownSize))
                  .Pir("(x, mask)"),
              {{"Mask", "X"}, {"Y"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("tril_triu", "X -> Out")
                  .Attr("diagonal", 0)
                  .Attr("lower", true)
                  .Infer(Triangle("X"))
                  .Batch({batch::NotLast("X", 2), Powers::kFirst})
                  .Pir("tril")
                  .Pir("triu"),
              {{}, {"Out"}, {"X"}}, Triangle("Out@GRAD"));
}

}  // namespace weft
