// Tensors in memory.
#ifndef WEFT_OPS_TENSOR_H_
#define WEFT_OPS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/float16.h"
#include "ops/memory.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Maps a C++ element type to its DType.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUint8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kInt16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};

// A tensor, row-major, in host or device memory: a shape over a buffer that it shares with its
// copies. A default-constructed tensor holds nothing (allocated() is false), and is one of host
// memory.
//
// A tensor may hold some rows of a taller one (SelectedRows): then dims() is [number of rows, ...],
// the elements are those of the rows, rows() has their numbers in the taller tensor, and height()
// is its number of rows. A number may occur several times: such rows add up to one. Rows without a
// number are zero.
//
// Copies are for one thread: a tensor that another thread is to write is a Clone.
class Tensor {
 public:
  Tensor() = default;
  // One that is going to hold something in that memory, which must outlive it and its copies.
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
  // Of a tensor that is_rows(). Row numbers are in [0, height), which who writes them sees to.
  absl::Span<const int64_t> rows() const { return rows_; }
  absl::Span<int64_t> mutable_rows() { return absl::MakeSpan(rows_); }
  int64_t height() const { return height_; }
  // The elements of one row.
  int64_t row_size() const { return NumElements(absl::MakeConstSpan(dims_).subspan(1)); }

  // Makes the tensor ready to be written: gives it this type and these (known) dims, and memory
  // of its own, 64-byte aligned. Keeps its buffer where that is large enough and not shared
  // with another tensor; keeps the place that Wrap gave it where that is large enough, shared or
  // not. The elements keep their values where type and dims stay as they are, which is what lets an
  // op work in place; otherwise they are uninitialized. Throws std::bad_alloc, also where a size
  // does not fit memory addresses. Makes it dense.
  void Resize(DType dtype, const Dims& dims);
  // The same for some rows of a tensor of these dims, whose first is the height. Row numbers keep
  // their values where there are as many; otherwise they are unspecified.
  void ResizeRows(DType dtype, const Dims& tall_dims, int64_t num_rows);
  // A tensor over memory that somebody else keeps alive through `owner`: a part of a fused buffer,
  // device memory. Writes go there (see Resize), those of its copies too.
  static Tensor Wrap(DType dtype, const Dims& dims, std::shared_ptr<void> owner, void* data,
                     Memory* memory = HostMemory());

  // The elements. Throws WrongElementType where T is not the element type, or the tensor holds
  // nothing.
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
  // The elements of a tensor that is_rows(), as a dense tensor that shares its buffer.
  Tensor RowValues() const;
  // The dims of the tensor that the rows are taken from.
  Dims TallDims() const;
  // A deep copy, in host memory. Host memory only.
  Tensor Clone() const;
  // Makes this tensor a deep copy of another one, which may be in other memory; one of them is the
  // host's, or both are in the same. Returns when it is done. Errors are those of a device.
  absl::Status CopyFrom(const Tensor& other);
  // A tensor in host memory: itself, or a copy.
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
  bool wrapped_ = false;  // data_ is a place that Wrap gave
  std::vector<int64_t> rows_;
  int64_t height_ = kDense;
};

// The elements of a tensor were asked for as those of another type. What inference lets through
// must neither be misread nor end the process: kernels are called where exceptions become errors.
class WrongElementType : public std::logic_error {
 public:
  WrongElementType(const Tensor* tensor, DType expected);

  const Tensor* tensor() const { return tensor_; }

 private:
  const Tensor* tensor_;
};

inline void Tensor::CheckDType(DType expected) const {
  if (dtype_ != expected || data_ == nullptr) throw WrongElementType(this, expected);
}

}  // namespace weft

#endif  // WEFT_OPS_TENSOR_H_
