// Several tensors in one buffer, for all devices.
#ifndef WEFT_OPS_COALESCE_TENSOR_H_
#define WEFT_OPS_COALESCE_TENSOR_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft {

// What happens in the memory of the device.
struct BufferOps {
  absl::Status (*clear)(const KernelContext& ctx, void* to, size_t bytes);
  absl::Status (*copy)(const KernelContext& ctx, const void* from, size_t bytes, void* to);
  // All elements, including padding, become `value`.
  absl::Status (*fill)(const KernelContext& ctx, double value, Tensor* buffer);
};

// FusedOutput: one buffer. Output[i]: views of it, in order, each aligned. The values come from
// Input (copy_data), a constant (set_constant), or what the memory holds, such as those of the step
// before. The positions never change after the first step. Padding is cleared in every step: a
// buffer may lie where other values were (executor/step/bound_step.h).
absl::StatusOr<Kernel> CoalesceTensor(const KernelSpec& spec, const BufferOps& ops);

}  // namespace weft

#endif  // WEFT_OPS_COALESCE_TENSOR_H_
