// Tensors of random numbers.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferRandInt(InferContext& context) {
  WEFT_RETURN_IF_ERROR(IndexDTypeFromAttr(context, "dtype").status());
  const int64_t low = context.attrs().Int("low"), high = context.attrs().Int("high");
  if (low >= high) {
    return context.AttrError("low", absl::StrCat("a number below ", high, " (high)"),
                             absl::StrCat(low));
  }
  return InferFromShapeAttr(context);
}

absl::Status InferRandPerm(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  context.SetOutput("Out", {dtype, {context.attrs().Int("n")}});
  return absl::OkStatus();
}

// Weights of categories, or rows of them.
absl::Status InferMultinomial(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 1 && x->dims.size() != 2) {
    return context.InputError("X", "one or two dimensions");
  }
  TensorType out = {DType::kInt64, x->dims};
  out.dims.back() = context.attrs().Int("num_samples");
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddRandomSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("gaussian_random", "ShapeTensor{shape}, ShapeTensorList*{shape} -> Out")
                   .Attr("dtype", kFp32)
                   .Attr("mean", 0.0f)
                   .Attr("seed", 0)
                   .Attr("shape", Longs{})
                   .Attr("std", 1.0f)
                   .With(Trait::kSideEffect)
                   .Infer(InferFromShapeAttr)
                   .Batch({batch::Draw(batch::FillConstant), Powers::kOwn})
                   .Pir("gaussian(@shape/tensor)"));
  // Whole numbers from low to high - 1.
  schemas->Add(OpSchema("randint", "ShapeTensor{shape}, ShapeTensorList*{shape} -> Out")
                   .Attr("dtype", kInt64)
                   .RequiredAttr("high", 0)
                   .RequiredAttr("low", 0)
                   .Attr("seed", 0)
                   .Attr("shape", Longs{})
                   .With(Trait::kSideEffect)
                   .Infer(InferRandInt)
                   .Batch({batch::Draw(batch::FillConstant), Powers::kOwn})
                   .Pir("(@shape/tensor)"));
  // 0 to n - 1 in any order.
  schemas->Add(OpSchema("randperm", "-> Out")
                   .Attr("dtype", kInt64)
                   .RequiredAttr("n", 0, range::AtLeast(1))
                   .With(Trait::kSideEffect)
                   .Infer(InferRandPerm)
                   .Batch({batch::Draw(batch::FillConstant), Powers::kOwn})
                   .Pir());
  schemas->Add(OpSchema("bernoulli", "X -> Out")
                   .With(Trait::kSideEffect)
                   .Infer(OutputsLike("X"))
                   .Batch({batch::DrawBy(batch::Elementwise), Powers::kOwn})
                   .Pir());
  AddWithGrad(schemas,
              OpSchema("poisson", "X -> Out")
                  .With(Trait::kSideEffect)
                  .Infer(OutputsLike("X"))
                  .Batch({batch::DrawBy(batch::Elementwise), Powers::kOwn})
                  .Pir(),
              {{}, {"Out"}, {"X"}}, OutputsLike("Out@GRAD"));
  schemas->Add(OpSchema("multinomial", "X -> Out")
                   .Attr("num_samples", 1, range::AtLeast(1))
                   .Attr("replacement", false)
                   .With(Trait::kSideEffect)
                   .Infer(InferMultinomial)
                   .Batch({batch::DrawBy(batch::NotLast("X")), Powers::kOwn})
                   .Pir("(x, @num_samples)"));
  // A normal distribution cut off at mean + a * std and mean + b * std.
  schemas->Add(OpSchema("truncated_gaussian_random", "-> Out")
                   .Attr("a", -2.0f)
                   .Attr("b", 2.0f)
                   .Attr("dtype", kFp32)
                   .Attr("mean", 0.0f)
                   .Attr("seed", 0)
                   .RequiredAttr("shape", Ints{})
                   .Attr("std", 1.0f)
                   .With(Trait::kSideEffect)
                   .Infer(InferFromShapeAttr)
                   .Batch({batch::Draw(batch::FillConstant), Powers::kOwn})
                   .Pir());
  schemas->Add(OpSchema("uniform_random", "ShapeTensor{shape}, ShapeTensorList*{shape} -> Out")
                   .Attr("diag_num", 0)
                   .Attr("diag_step", 0)
                   .Attr("diag_val", 1.0f)
                   .Attr("dtype", kFp32)
                   .Attr("max", 1.0f)
                   .Attr("min", -1.0f)
                   .Attr("seed", 0)
                   .Attr("shape", Longs{})
                   .With(Trait::kSideEffect)
                   .Infer(InOrder({InferFromShapeAttr, CheckUniform}))
                   .Batch({batch::Draw(batch::FillConstant), Powers::kOwn})
                   .Pir("uniform(@shape/tensor, @min, @max)"));
}

}  // namespace weft
