// Selections of the large elements of gradients, and the way back to tensors.
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/extra/packed_shapes.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Out has rows of one element: some of those of the tensors X, one after the other.
absl::Status InferSparsify(InferContext& context) {
  const size_t count = context.NumInputs("X");
  for (const char* slot : {"Residual", "ResidualOut"}) {
    const bool is_input = slot == absl::string_view("Residual");
    const size_t found = is_input ? context.NumInputs(slot) : context.NumOutputs(slot);
    if (found != 0 && found != count) {
      return context.InputError("X", absl::StrCat("as many variables as ", slot, " has, ", found));
    }
  }
  if (context.HasInput("Residual") != context.HasOutput("ResidualOut")) {
    return context.InputError("X", "Residual and ResidualOut, or neither");
  }
  int64_t elements = 0;
  for (size_t i = 0; i < count; ++i) {
    const TensorType* x = context.Input("X", i);
    const TensorType* residual = context.Input("Residual", i);
    for (const TensorType* type : {x, residual}) {
      if (type == nullptr) continue;
      if (type->dtype != DType::kFloat32 || type->kind != TensorType::Kind::kDense) {
        return context.InputError(type == x ? "X" : "Residual", i, "a dense fp32 tensor");
      }
    }
    if (x != nullptr && residual != nullptr && !DimsFit(x->dims, residual->dims)) {
      return context.InputError("Residual", i, absl::StrCat(ToString(*x), " as X"));
    }
    if (x != nullptr) context.SetOutput("ResidualOut", i, *x);
    elements = x == nullptr ? -1 : AddDim(elements, NumElements(x->dims));
  }
  context.SetOutput("Out", {DType::kFloat32, {elements, 1}, TensorType::Kind::kSelectedRows});
  if (context.attrs().Has("k")) {
    const int64_t k = context.attrs().Int("k");
    if (k < 0 || (elements >= 0 && k > elements)) {
      return context.AttrError("k", absl::StrCat("a number of elements of X, from 0 to ", elements),
                               absl::StrCat(k));
    }
    return absl::OkStatus();
  }
  if (std::isinf(context.attrs().Float("threshold"))) {
    return context.AttrError("threshold", "a finite number", "inf");
  }
  return absl::OkStatus();
}

absl::Status InferDensify(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Dims> shapes, PackedShapes(context.attrs()));
  if (shapes.size() != context.NumOutputs("Out")) {
    return context.AttrError(
        "concated_ranks",
        absl::StrCat("a rank for each of ", context.NumOutputs("Out"), " variables of Out"),
        absl::StrCat(shapes.size()));
  }
  int64_t elements = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    elements = AddDim(elements, NumElements(shapes[i]));
    context.SetOutput("Out", i, {DType::kFloat32, shapes[i]});
  }
  const TensorType* x = context.Input("X");
  const TensorType expected = {DType::kFloat32, {elements, 1}, TensorType::Kind::kSelectedRows};
  if (x == nullptr) return absl::OkStatus();
  if (x->dtype == expected.dtype && x->kind == expected.kind && DimsFit(x->dims, expected.dims)) {
    return absl::OkStatus();
  }
  return context.InputError("X", absl::StrCat(ToString(expected), ", the elements of Out"));
}

}  // namespace

void AddSparsifySchemas(OpSchemaTable* schemas) {
  constexpr char kSlots[] = "Residual*?, X* -> Out, ResidualOut*?=Residual";
  schemas->Add(OpSchema("sparsify_topk", kSlots)
                   .RequiredAttr("k", int64_t{1})
                   .Infer(InferSparsify)
                   .Algebra(Algebra::kSparsify)
                   .Batch(batch::Unrelated(batch::kSparsifies)));
  schemas->Add(OpSchema("sparsify_threshold", kSlots)
                   .RequiredAttr("threshold", 0.0f, range::AtLeast(0))
                   .Infer(InferSparsify)
                   .Algebra(Algebra::kSparsify)
                   .Batch(batch::Unrelated(batch::kSparsifies)));
  schemas->Add(OpSchema("densify", "X -> Out*")
                   .RequiredAttr("concated_ranks", std::vector<int64_t>{})
                   .RequiredAttr("concated_shapes", std::vector<int64_t>{})
                   .With(Trait::kLinear)
                   .Infer(InferDensify)
                   .Batch(batch::Unrelated(batch::kRowsOfGradient)));
}

}  // namespace weft
