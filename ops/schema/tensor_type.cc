#include "ops/schema/tensor_type.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/op_role.h"

namespace weft {
namespace {

struct DTypeInfo {
  DType dtype;
  const char* name;
  size_t size;
  bool floating;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::kBool, "bool", 1, false},           {DType::kInt16, "int16", 2, false},
    {DType::kInt32, "int32", 4, false},         {DType::kInt64, "int64", 8, false},
    {DType::kFloat16, "fp16", 2, true},         {DType::kFloat32, "fp32", 4, true},
    {DType::kFloat64, "fp64", 8, true},         {DType::kUint8, "uint8", 1, false},
    {DType::kInt8, "int8", 1, false},           {DType::kBFloat16, "bf16", 2, true},
    {DType::kComplex64, "complex64", 8, false}, {DType::kComplex128, "complex128", 16, false},
    {DType::kFloat8E4M3, "fp8_e4m3", 1, true},  {DType::kFloat8E5M2, "fp8_e5m2", 1, true},
    {DType::kUint16, "uint16", 2, false},       {DType::kUint32, "uint32", 4, false},
    {DType::kUint64, "uint64", 8, false},
};

const DTypeInfo* Find(DType dtype) {
  const auto* info = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                  [&](const DTypeInfo& i) { return i.dtype == dtype; });
  return info == std::end(kDTypes) ? nullptr : info;
}

// Every dimension at least -1, and no more than kMaxElements elements if unknown ones are 1.
bool ArePossible(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim < -1 || dim > kMaxElements) return false;
    if (dim > 0 && (__builtin_mul_overflow(product, dim, &product) || product > kMaxElements)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::optional<DType> DTypeFromProto(int number) {
  for (const DTypeInfo& info : kDTypes) {
    if (static_cast<int>(info.dtype) == number) return info.dtype;
  }
  return absl::nullopt;
}

absl::string_view DTypeName(DType dtype) {
  const DTypeInfo* info = Find(dtype);
  return info == nullptr ? "invalid" : info->name;
}

absl::optional<DType> ParseDType(absl::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (name == info.name) return info.dtype;
  }
  return absl::nullopt;
}

size_t SizeOf(DType dtype) {
  const DTypeInfo* info = Find(dtype);
  return info == nullptr ? 0 : info->size;
}

bool IsFloating(DType dtype) {
  const DTypeInfo* info = Find(dtype);
  return info != nullptr && info->floating;
}

int64_t NumElements(absl::Span<const int64_t> dims) {
  if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; })) return -1;
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (__builtin_mul_overflow(product, dim, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

std::string DimsToString(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

std::string ToString(const TensorType& type) {
  return absl::StrCat(type.kind == TensorType::Kind::kSelectedRows ? "rows " : "",
                      DTypeName(type.dtype), DimsToString(type.dims));
}

absl::optional<TensorType> DeclaredType(const Var& var) {
  const absl::optional<pb::VarType::TensorDesc> tensor = var.Tensor();
  if (!tensor.has_value()) return absl::nullopt;
  const absl::optional<DType> dtype = DTypeFromProto(tensor->data_type());
  if (!dtype.has_value()) return absl::nullopt;
  TensorType type;
  type.dtype = *dtype;
  type.dims.assign(tensor->dims().begin(), tensor->dims().end());
  if (!ArePossible(type.dims)) return absl::nullopt;
  // static.nn.sparse_embedding declares a table as rows of a fixed height, and an initializer fills
  // it: a persistable variable has all rows, but for a gradient, which persists to be fetched.
  const bool has_all_rows = var.persistable() && !type.dims.empty() && type.dims[0] > 0 &&
                            !absl::StrContains(var.name(), kGradSuffix);
  if (var.type() == pb::VarType::SELECTED_ROWS && !has_all_rows) {
    type.kind = TensorType::Kind::kSelectedRows;
  }
  return type;
}

}  // namespace weft
