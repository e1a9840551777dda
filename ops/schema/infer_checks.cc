#include "ops/schema/infer_checks.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/infer_functions.h"

namespace weft {

bool IsIndex(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

absl::Status CheckDims(const InferContext& context, const char* slot, const Dims& dims) {
  const TensorType* type = context.Input(slot);
  if (type == nullptr || DimsFit(type->dims, dims)) return absl::OkStatus();
  return context.InputError(slot, absl::StrCat("dimensions ", DimsToString(dims)));
}

absl::Status CheckVector(const InferContext& context, const char* slot, int64_t size) {
  return CheckDims(context, slot, {size});
}

absl::Status CheckVectors(const InferContext& context, std::initializer_list<const char*> slots,
                          int64_t size) {
  for (const char* slot : slots) WEFT_RETURN_IF_ERROR(CheckVector(context, slot, size));
  return absl::OkStatus();
}

absl::Status CheckOneElement(const InferContext& context, const char* slot, size_t i) {
  const TensorType* type = context.Input(slot, i);
  if (type == nullptr) return absl::OkStatus();
  const int64_t elements = NumElements(type->dims);
  if (elements == 1 || elements == -1) return absl::OkStatus();
  return context.InputError(slot, i, "one element");
}

absl::Status CheckImage(const InferContext& context, const char* slot) {
  const TensorType* x = context.Input(slot);
  if (x == nullptr || x->dims.size() == 4) return absl::OkStatus();
  return context.InputError(slot, "four dimensions (batch, channels, height, width)");
}

absl::Status CheckPositive(const InferContext& context, std::initializer_list<const char*> attrs) {
  for (const char* name : attrs) {
    const int64_t value = context.attrs().Int(name);
    if (value < 1 || value > kMaxElements) {
      return context.AttrError(name, "a positive number", absl::StrCat(value));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSameLength(const InferContext& context, const char* attr, size_t length) {
  const size_t found = context.attrs().Ints(attr).size();
  if (found == length) return absl::OkStatus();
  return context.AttrError(attr, absl::StrCat(length, " numbers, one per axis"),
                           absl::StrCat(found));
}

}  // namespace weft
