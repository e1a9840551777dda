// Launches over the elements of many tensors: for .cu files only.
#ifndef WEFT_OPS_GPU_TENSOR_LIST_H_
#define WEFT_OPS_GPU_TENSOR_LIST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ops/gpu/launch.h"

namespace weft {

// f(tensor, i) for the elements i of tensors, each of which an Item describes.
template <typename Item, typename F>
struct ForEachOfTensors {
  static constexpr int kTensors = kArgumentBytes / (sizeof(Item) + sizeof(int64_t));

  F f;
  int count = 0;
  int64_t begins[kTensors];  // ascending, of elements
  Item tensors[kTensors];

  WEFT_DEVICE void operator()(int64_t i) const {
    int begin = 0, end = count;  // the last tensor that begins at i, or before
    while (end - begin > 1) {
      const int middle = (begin + end) / 2;
      (begins[middle] <= i ? begin : end) = middle;
    }
    f(tensors[begin], i - begins[begin]);
  }
};

// Makes one launch of as many tensors as its arguments hold.
template <typename Item, typename F>
class TensorList {
 public:
  TensorList(const KernelContext& ctx, const F& f) : ctx_(ctx), launch_{f, 0, {}, {}} {}

  // Launches if the list is full.
  absl::Status Add(const Item& tensor, int64_t size) {
    if (size == 0) return absl::OkStatus();
    launch_.begins[launch_.count] = size_;
    launch_.tensors[launch_.count++] = tensor;
    size_ += size;
    return launch_.count == launch_.kTensors ? Launch() : absl::OkStatus();
  }
  // What has been added since the last launch.
  absl::Status Launch() {
    const absl::Status status = ForEach(ctx_, size_, launch_);
    size_ = launch_.count = 0;
    return status;
  }

 private:
  const KernelContext& ctx_;
  int64_t size_ = 0;
  ForEachOfTensors<Item, F> launch_;
};

}  // namespace weft

#endif  // WEFT_OPS_GPU_TENSOR_LIST_H_
