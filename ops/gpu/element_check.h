// Checks of elements on the device: for .cu files only.
#ifndef WEFT_OPS_GPU_ELEMENT_CHECK_H_
#define WEFT_OPS_GPU_ELEMENT_CHECK_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/device_fault.h"
#include "ops/gpu/block.h"
#include "ops/kernel.h"

namespace weft::gpu {

// Of the elements of input `slot`. One that is wrong ends the step with an error, once the host has
// waited for it. Until then the kernel goes on without the element.
class ElementCheck {
 public:
  ElementCheck(const KernelContext& ctx, const char* slot)
      : fault_(ctx.fault), op_(ctx.op), slot_(slot) {}

  // Whether `value`, the element at `position`, is in [low, high).
  WEFT_DEVICE bool IsInRange(int64_t value, int64_t low, int64_t high, int64_t position) const {
    if (value >= low && value < high) return true;
    Report(value, low, high, position);
    return false;
  }
  // Whether integers can be divided by the element.
  WEFT_DEVICE bool IsDivisor(int64_t value) const {
    if (value != 0) return true;
    Report(value, /*low=*/1, /*high=*/0, /*position=*/0);
    return false;
  }

 private:
  WEFT_DEVICE void Report(int64_t value, int64_t low, int64_t high, int64_t position) const {
#ifdef __CUDACC__
    if (atomicCAS(&fault_->is_set, 0U, 1U) != 0) return;
#else
    if (fault_->is_set != 0) return;
    fault_->is_set = 1;
#endif
    fault_->op = op_;
    fault_->slot = slot_;
    fault_->value = value;
    fault_->low = low;
    fault_->high = high;
    fault_->position = position;
  }

  DeviceFault* fault_;
  int op_;
  const char* slot_;
};

// The result of a wrong element: NaN; all bits are 1, which is NaN where T stands for the bits of
// some type.
template <typename T>
WEFT_DEVICE T NoValue() {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(NAN);
  } else {
    return static_cast<T>(-1);
  }
}

}  // namespace weft::gpu

#endif  // WEFT_OPS_GPU_ELEMENT_CHECK_H_
