// Histograms of integers.
#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

absl::Status InferBinCount(InferContext& context) {
  const int64_t least = context.attrs().Int("minlength");
  if (least < 0 || least > kMaxElements) {
    return context.AttrError("minlength", "0 or more", absl::StrCat(least));
  }
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (!IsIndex(x->dtype) || x->dims.size() != 1) {
    return context.InputError("X", "one dimension of int64 or int32 numbers");
  }
  DType dtype = DType::kInt64;
  if (context.HasInput("Weights")) {
    const TensorType* weights = context.Input("Weights");
    if (weights == nullptr) return absl::OkStatus();
    if (!DimsFit(weights->dims, x->dims)) {
      return context.InputError("Weights", absl::StrCat("dimensions ", DimsToString(x->dims)));
    }
    dtype = weights->dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  }
  context.SetOutput("Out", {dtype, {-1}});
  return absl::OkStatus();
}

}  // namespace

void AddBincountSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("bincount")
                   .In("Weights", kOptional)
                   .In("X")
                   .Out("Out")
                   .Attr("minlength", 0)
                   .Infer(InferBinCount));
}

}  // namespace weft
