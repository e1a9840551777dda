// Tensors of random numbers.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Element type number 5 of the format.
const int kFp32 = static_cast<int>(DType::kFloat32);

absl::Status InferFromAttributes(InferContext& context) {
  const int64_t number = context.attrs().Int("dtype");
  const absl::optional<DType> dtype =
      number == static_cast<int>(number) ? DTypeFromProto(static_cast<int>(number)) : absl::nullopt;
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type", absl::StrCat(number));
  }
  // A shape that is computed is not known here.
  if (HasAttrInput(context)) {
    return absl::OkStatus();
  }
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  for (int64_t dim : shape) {
    if (dim < -1 || dim > kMaxElements) {
      return context.AttrError("shape", "dimensions", DimsToString(shape));
    }
  }
  context.SetOutput("Out", {*dtype, Dims(shape.begin(), shape.end())});
  return absl::OkStatus();
}

absl::Status InferRandInt(InferContext& context) {
  const int64_t dtype = context.attrs().Int("dtype");
  if (dtype != static_cast<int>(DType::kInt32) && dtype != static_cast<int>(DType::kInt64)) {
    return context.AttrError("dtype", "the number of int32 or int64", absl::StrCat(dtype));
  }
  return InferFromAttributes(context);
}

absl::Status InferRandPerm(InferContext& context) {
  const int64_t n = context.attrs().Int("n");
  const absl::optional<DType> dtype =
      DTypeFromProto(static_cast<int>(context.attrs().Int("dtype")));
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type",
                             absl::StrCat(context.attrs().Int("dtype")));
  }
  if (n < 1 || n > kMaxElements) return context.AttrError("n", "1 or more", absl::StrCat(n));
  context.SetOutput("Out", {*dtype, {n}});
  return absl::OkStatus();
}

// Weights of categories, or rows of them.
absl::Status InferMultinomial(InferContext& context) {
  const int64_t samples = context.attrs().Int("num_samples");
  if (samples < 1 || samples > kMaxElements) {
    return context.AttrError("num_samples", "1 or more", absl::StrCat(samples));
  }
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 1 && x->dims.size() != 2) {
    return context.InputError("X", "one or two dimensions");
  }
  TensorType out = {DType::kInt64, x->dims};
  out.dims.back() = samples;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

}  // namespace

void AddRandomSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("gaussian_random")
                   .AttrIn("ShapeTensor", {"shape"})
                   .AttrIn("ShapeTensorList", {"shape"}, OpSchema::kDuplicable)
                   .Out("Out")
                   .Attr("dtype", kFp32)
                   .Attr("mean", 0.0f)
                   .Attr("seed", 0)
                   .Attr("shape", Longs{})
                   .Attr("std", 1.0f)
                   .With(Trait::kSideEffect)
                   .Infer(InferFromAttributes));
  // Whole numbers from low to high - 1.
  schemas->Add(OpSchema("randint")
                   .AttrIn("ShapeTensor", {"shape"})
                   .AttrIn("ShapeTensorList", {"shape"}, OpSchema::kDuplicable)
                   .Out("Out")
                   .Attr("dtype", static_cast<int>(DType::kInt64))
                   .RequiredAttr("high", 0)
                   .RequiredAttr("low", 0)
                   .Attr("seed", 0)
                   .Attr("shape", Longs{})
                   .With(Trait::kSideEffect)
                   .Infer(InferRandInt));
  // 0 to n - 1 in any order.
  schemas->Add(OpSchema("randperm")
                   .Out("Out")
                   .Attr("dtype", static_cast<int>(DType::kInt64))
                   .RequiredAttr("n", 0)
                   .With(Trait::kSideEffect)
                   .Infer(InferRandPerm));
  schemas->Add(
      OpSchema("bernoulli").In("X").Out("Out").With(Trait::kSideEffect).Infer(OutputsLike("X")));
  OpSchema poisson =
      OpSchema("poisson").In("X").Out("Out").With(Trait::kSideEffect).Infer(OutputsLike("X"));
  schemas->Add(GradSchema(poisson, "poisson_grad", {{}, {"Out"}, {"X"}}, OutputsLike("Out@GRAD")));
  schemas->Add(std::move(poisson));
  schemas->Add(OpSchema("multinomial")
                   .In("X")
                   .Out("Out")
                   .Attr("num_samples", 1)
                   .Attr("replacement", false)
                   .With(Trait::kSideEffect)
                   .Infer(InferMultinomial));
  // A normal distribution cut off at mean + a * std and mean + b * std.
  schemas->Add(OpSchema("truncated_gaussian_random")
                   .Out("Out")
                   .Attr("a", -2.0f)
                   .Attr("b", 2.0f)
                   .Attr("dtype", kFp32)
                   .Attr("mean", 0.0f)
                   .Attr("seed", 0)
                   .RequiredAttr("shape", Ints{})
                   .Attr("std", 1.0f)
                   .With(Trait::kSideEffect)
                   .Infer(InferFromAttributes));
  schemas->Add(OpSchema("uniform_random")
                   .AttrIn("ShapeTensor", {"shape"})
                   .AttrIn("ShapeTensorList", {"shape"}, OpSchema::kDuplicable)
                   .Out("Out")
                   .Attr("diag_num", 0)
                   .Attr("diag_step", 0)
                   .Attr("diag_val", 1.0f)
                   .Attr("dtype", kFp32)
                   .Attr("max", 1.0f)
                   .Attr("min", -1.0f)
                   .Attr("seed", 0)
                   .Attr("shape", Longs{})
                   .With(Trait::kSideEffect)
                   .Infer(InferFromAttributes));
}

}  // namespace weft
