#include "ops/tensor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace weft {
namespace {

constexpr std::align_val_t kAlignment{64};

std::shared_ptr<void> Allocate(size_t bytes) {
  return std::shared_ptr<void>(::operator new(bytes, kAlignment),
                               [](void* p) { ::operator delete(p, kAlignment); });
}

}  // namespace

void Tensor::Resize(DType dtype, const Dims& dims) {
  ResizeValues(dtype, dims);
  rows_.clear();
  height_ = kDense;
}

void Tensor::ResizeRows(DType dtype, const Dims& tall_dims, int64_t num_rows) {
  assert(!tall_dims.empty() && tall_dims[0] >= 0);
  Dims dims = tall_dims;
  dims[0] = num_rows;
  ResizeValues(dtype, dims);
  rows_.resize(num_rows);
  height_ = tall_dims[0];
}

void Tensor::ResizeValues(DType dtype, const Dims& dims) {
  const int64_t size = NumElements(dims);
  assert(size >= 0);
  const size_t bytes = size * SizeOf(dtype);
  const bool may_write_here = wrapped_ || owner_.use_count() == 1;
  if (data_ == nullptr || bytes > capacity_ || !may_write_here) {
    const bool keeps_values = data_ != nullptr && dtype == dtype_ && dims == dims_;
    // An empty tensor has an address too: it is allocated.
    const size_t capacity = std::max<size_t>(bytes, 1);
    std::shared_ptr<void> memory = Allocate(capacity);
    if (keeps_values) std::memcpy(memory.get(), data_, bytes);
    owner_ = std::move(memory);
    data_ = owner_.get();
    capacity_ = capacity;
    wrapped_ = false;
  }
  dtype_ = dtype;
  dims_ = dims;
  size_ = size;
}

Tensor Tensor::Wrap(DType dtype, const Dims& dims, std::shared_ptr<void> owner, void* data) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.dims_ = dims;
  tensor.size_ = NumElements(dims);
  tensor.owner_ = std::move(owner);
  tensor.data_ = data;
  tensor.capacity_ = tensor.bytes();
  tensor.wrapped_ = true;
  return tensor;
}

void Tensor::Reshape(const Dims& dims) {
  assert(NumElements(dims) == size_ && !is_rows());
  dims_ = dims;
}

Tensor Tensor::RowValues() const {
  assert(is_rows());
  Tensor values = *this;
  values.rows_.clear();
  values.height_ = kDense;
  return values;
}

Dims Tensor::TallDims() const {
  assert(is_rows());
  Dims dims = dims_;
  dims[0] = height_;
  return dims;
}

Tensor Tensor::Clone() const {
  Tensor copy;
  if (!allocated()) return copy;
  copy.ResizeValues(dtype_, dims_);
  std::memcpy(copy.data_, data_, bytes());
  copy.rows_ = rows_;
  copy.height_ = height_;
  return copy;
}

}  // namespace weft
