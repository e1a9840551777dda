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
  assert(NumElements(dims) == size_);
  dims_ = dims;
}

Tensor Tensor::Clone() const {
  Tensor copy;
  if (!allocated()) return copy;
  copy.Resize(dtype_, dims_);
  std::memcpy(copy.data_, data_, bytes());
  return copy;
}

}  // namespace weft
