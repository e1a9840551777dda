// Tensors in memory.
#ifndef WEFT_OPS_TENSOR_H_
#define WEFT_OPS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/float16.h"
#include "ops/memory.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Maps a C++ element type to its DType.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::kBool> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, DType::kInt8> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::kUint8> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<DType, DType::kInt16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::kInt32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::kInt64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kFloat32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kFloat64> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::kFloat16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::kBFloat16> {};

// A row-major tensor in host or device memory: a shape over a buffer that it shares with its
// copies. A default-constructed tensor is in host memory and has no buffer (allocated() is false).
//
// A tensor may hold some rows of a taller one (SelectedRows): then dims() is [number of rows, ...],
// the elements are those of the rows, rows() has their indices in the taller tensor, and height()
// is its number of rows. An index may occur several times: such rows add up to one. Rows without an
// index are zero.
//
// Copies belong to one thread; another thread needs a Clone.
class Tensor {
 public:
  Tensor() = default;
  // Allocates from `memory`, which must outlive the tensor and its copies.
  explicit Tensor(Memory* memory) : memory_(memory) {}

  Memory* memory() const { return memory_; }
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int i) const { return dims_[i]; }
  int64_t size() const { return size_; }  // elements
  size_t bytes() const { return size_ * SizeOf(dtype_); }
  bool allocated() const { return data_ != nullptr; }

  bool is_rows() const { return height_ != kDense; }
  // Only if is_rows(). Row indices are in [0, height); the writer ensures it.
  absl::Span<const int64_t> rows() const { return rows_; }
  absl::Span<int64_t> mutable_rows() { return absl::MakeSpan(rows_); }
  int64_t height() const { return height_; }
  // The elements of one row.
  int64_t row_size() const { return NumElements(absl::MakeConstSpan(dims_).subspan(1)); }

  // Prepares the tensor for writing: sets its type and its (known) dims, makes it dense and gives
  // it a private, 64-byte aligned buffer. Keeps the present buffer if that is large enough and
  // either unshared or from Wrap. Elements keep their values if type and dims stay, so that ops can
  // work in place; otherwise they are uninitialized. Throws std::bad_alloc, also for sizes beyond
  // the address space.
  void Resize(DType dtype, const Dims& dims);
  // The same for rows of a tensor of `tall_dims`, whose first dimension is the height. Row indices
  // keep their values if their number stays; otherwise they are unspecified.
  void ResizeRows(DType dtype, const Dims& tall_dims, int64_t num_rows);
  // A tensor over memory that `owner` keeps alive: a slice of a fused buffer, device memory. It and
  // its copies write there (see Resize).
  static Tensor Wrap(DType dtype, const Dims& dims, std::shared_ptr<void> owner, void* data,
                     Memory* memory = HostMemory());

  // The elements. Throws WrongElementType if T is not the element type, or nothing is allocated.
  template <typename T>
  T* data() {
    CheckDType(DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    CheckDType(DTypeOf<T>::value);
    return static_cast<const T*>(data_);
  }
  void* raw() { return data_; }
  const void* raw() const { return data_; }

  bool SharesBufferWith(const Tensor& other) const { return data_ && data_ == other.data_; }
  // The same elements under other dimensions of the same size; of a dense tensor.
  void Reshape(const Dims& dims);
  // Makes this tensor `count` elements of a dense one, from `begin` on, as a vector. It does not
  // keep their memory alive, and must not be resized. Allocates nothing.
  void PointTo(const Tensor& whole, int64_t begin, int64_t count);
  // The elements of a tensor that is_rows(), as a dense tensor that shares its buffer.
  Tensor RowValues() const;
  // The dims of the taller tensor.
  Dims TallDims() const;
  // A deep copy; both in host memory.
  Tensor Clone() const;
  // Makes this tensor a deep copy of `other`; at least one is in host memory, or both are in the
  // same memory. Returns when the copy is done. Errors are those of a device.
  absl::Status CopyFrom(const Tensor& other);
  // Itself if in host memory, else a copy there.
  absl::StatusOr<Tensor> ToHost() const;

 private:
  static constexpr int64_t kDense = -1;  // as a height

  void ResizeValues(DType dtype, const Dims& dims);
  void CheckDType(DType expected) const;

  Memory* memory_ = HostMemory();
  DType dtype_ = DType::kFloat32;
  Dims dims_;
  int64_t size_ = 0;
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  size_t capacity_ = 0;   // bytes at data_ that this tensor may use
  bool wrapped_ = false;  // data_ is from Wrap
  std::vector<int64_t> rows_;
  int64_t height_ = kDense;
};

// A kernel reads the elements of a tensor as those of another type. Inference does not check all
// element types; callers of kernels turn this exception into an error.
class WrongElementType : public std::logic_error {
 public:
  WrongElementType(const Tensor* tensor, absl::string_view expected);

  const Tensor* tensor() const { return tensor_; }

 private:
  const Tensor* tensor_;
};

inline void Tensor::CheckDType(DType expected) const {
  if (dtype_ != expected || data_ == nullptr) throw WrongElementType(this, DTypeName(expected));
}

}  // namespace weft

#endif  // WEFT_OPS_TENSOR_H_
