// Element types, shapes, and what is known of a variable before it holds anything.
#ifndef WEFT_OPS_SCHEMA_TENSOR_TYPE_H_
#define WEFT_OPS_SCHEMA_TENSOR_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// Element types, numbered as in the program format (pb::VarType::Type).
enum class DType : uint8_t {
  kBool = 0,
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kFloat32 = 5,
  kFloat64 = 6,
  kUint8 = 20,
  kInt8 = 21,
  kBFloat16 = 22,
  kComplex64 = 23,
  kComplex128 = 24,
  kFloat8E4M3 = 32,
  kFloat8E5M2 = 33,
  kUint16 = 36,
  kUint32 = 37,
  kUint64 = 38,
};

// The element type with that number in the format; none for containers and unknown numbers.
absl::optional<DType> DTypeFromProto(int number);
// "fp32", "int64", "bf16": as program text and messages spell it. ParseDType reads it back.
absl::string_view DTypeName(DType dtype);
absl::optional<DType> ParseDType(absl::string_view name);
// Bytes of an element.
size_t SizeOf(DType dtype);
bool IsFloating(DType dtype);  // fp16, bf16, fp32, fp64, fp8

// In a type, -1 is a dimension that is unknown until run time. {} is a scalar of one element.
using Dims = absl::InlinedVector<int64_t, 4>;

// The limit of dimensions, and of numbers of elements, of declared types. It is far more than fits
// into memory, and small enough that sums and differences of a few sizes cannot overflow.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Product of the dimensions; 1 for {}, -1 if one is unknown. At most INT64_MAX.
int64_t NumElements(absl::Span<const int64_t> dims);
std::string DimsToString(absl::Span<const int64_t> dims);  // "[-1, 784]"

// The type of a variable that holds a tensor: dense, or row-sparse (SelectedRows). The dims of a
// row-sparse tensor are those of the dense tensor that its rows belong to.
struct TensorType {
  enum class Kind : uint8_t { kDense, kSelectedRows };

  DType dtype = DType::kFloat32;
  Dims dims;
  Kind kind = Kind::kDense;

  friend bool operator==(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.dims == b.dims && a.kind == b.kind;
  }
  friend bool operator!=(const TensorType& a, const TensorType& b) { return !(a == b); }
};

std::string ToString(const TensorType& type);  // "fp32[-1, 784]", "rows fp32[100, 8]"

// The declared type of a variable. None if it is not a tensor, if its element type is unknown, or
// if its dimensions are impossible: below -1, or more than kMaxElements.
absl::optional<TensorType> DeclaredType(const Var& var);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_TENSOR_TYPE_H_
