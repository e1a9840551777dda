#include "ops/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {

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

WrongElementType::WrongElementType(const Tensor* tensor, absl::string_view expected)
    : std::logic_error(absl::StrCat(
          "expected ", expected, ", found ",
          tensor->allocated() ? DTypeName(tensor->dtype()) : "a variable that holds nothing")),
      tensor_(tensor) {}

void Tensor::ResizeValues(DType dtype, const Dims& dims) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 2;
  const int64_t size = NumElements(dims);
  assert(size >= 0);
  int64_t signed_bytes;
  if (__builtin_mul_overflow(size, static_cast<int64_t>(SizeOf(dtype)), &signed_bytes) ||
      signed_bytes > kMaxBytes) {
    throw std::bad_alloc();
  }
  const auto bytes = static_cast<size_t>(signed_bytes);
  const bool may_write_here = wrapped_ || owner_.use_count() == 1;
  if (data_ == nullptr || bytes > capacity_ || !may_write_here) {
    const bool keeps_values = data_ != nullptr && dtype == dtype_ && dims == dims_;
    // An empty tensor has an address too, because it counts as allocated.
    const size_t capacity = std::max<size_t>(bytes, 1);
    std::shared_ptr<void> memory = memory_->Allocate(capacity);
    if (keeps_values) (void)memory_->Copy(data_, bytes, memory.get(), /*stream=*/nullptr);
    owner_ = std::move(memory);
    data_ = owner_.get();
    capacity_ = capacity;
    wrapped_ = false;
  }
  dtype_ = dtype;
  dims_ = dims;
  size_ = size;
}

Tensor Tensor::Wrap(DType dtype, const Dims& dims, std::shared_ptr<void> owner, void* data,
                    Memory* memory) {
  Tensor tensor(memory);
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

void Tensor::PointTo(const Tensor& whole, int64_t begin, int64_t count) {
  memory_ = whole.memory_;
  dtype_ = whole.dtype_;
  dims_ = {count};
  size_ = count;
  owner_ = nullptr;
  data_ = static_cast<char*>(whole.data_) + begin * static_cast<int64_t>(SizeOf(dtype_));
  capacity_ = bytes();
  wrapped_ = true;
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

absl::Status Tensor::CopyFrom(const Tensor& other) {
  if (!other.allocated()) {
    *this = Tensor(memory_);
    return absl::OkStatus();
  }
  ResizeValues(other.dtype_, other.dims_);
  rows_ = other.rows_;
  height_ = other.height_;
  if (other.memory_->IsHost()) return memory_->CopyFromHost(other.data_, other.bytes(), data_);
  if (memory_->IsHost()) return other.memory_->CopyToHost(other.data_, other.bytes(), data_);
  return memory_->Copy(other.data_, other.bytes(), data_, /*stream=*/nullptr);
}

absl::StatusOr<Tensor> Tensor::ToHost() const {
  if (memory_->IsHost()) return *this;
  Tensor host;
  WEFT_RETURN_IF_ERROR(host.CopyFrom(*this));
  return host;
}

}  // namespace weft
