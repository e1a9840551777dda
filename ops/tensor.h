// Tensors in memory.
#ifndef WEFT_OPS_TENSOR_H_
#define WEFT_OPS_TENSOR_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

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

// A dense tensor, row-major, in host or device memory: a shape over a buffer that it shares with
// its copies. A default-constructed tensor holds nothing (allocated() is false).
//
// Copies are for one thread: a tensor that another thread is to write is a Clone.
class Tensor {
 public:
  Tensor() = default;

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int i) const { return dims_[i]; }
  int64_t size() const { return size_; }  // elements
  size_t bytes() const { return size_ * SizeOf(dtype_); }
  bool allocated() const { return data_ != nullptr; }

  // Makes the tensor ready to be written: gives it this type and these (known) dims, and host
  // memory of its own, 64-byte aligned. Keeps its buffer where that is large enough and not shared
  // with another tensor; keeps the place that Wrap gave it where that is large enough, shared or
  // not. The elements keep their values where type and dims stay as they are, which is what lets an
  // op work in place; otherwise they are uninitialized. Throws std::bad_alloc.
  void Resize(DType dtype, const Dims& dims);
  // A tensor over memory that somebody else keeps alive through `owner`: a part of a fused buffer,
  // device memory. Writes go there (see Resize), those of its copies too.
  static Tensor Wrap(DType dtype, const Dims& dims, std::shared_ptr<void> owner, void* data);

  // The elements. T must be the element type.
  template <typename T>
  T* data() {
    assert(DTypeOf<T>::value == dtype_);
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    assert(DTypeOf<T>::value == dtype_);
    return static_cast<const T*>(data_);
  }
  void* raw() { return data_; }
  const void* raw() const { return data_; }

  bool SharesBufferWith(const Tensor& other) const { return data_ && data_ == other.data_; }
  // The same elements under other dimensions of the same size.
  void Reshape(const Dims& dims);
  // A deep copy (host memory).
  Tensor Clone() const;

 private:
  DType dtype_ = DType::kFloat32;
  Dims dims_;
  int64_t size_ = 0;
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  size_t capacity_ = 0;   // bytes at data_ that this tensor may use
  bool wrapped_ = false;  // data_ is a place that Wrap gave
};

}  // namespace weft

#endif  // WEFT_OPS_TENSOR_H_
