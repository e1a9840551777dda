// CPU kernels that run ops of a device.
#ifndef WEFT_OPS_GPU_ON_HOST_H_
#define WEFT_OPS_GPU_ON_HOST_H_

#include "absl/strings/string_view.h"
#include "ops/kernel.h"

namespace weft {

// Runs the CPU kernel of that type on copies in host memory, after a synchronization of the stream:
// nothing overlaps. For ops of startup programs, whose results must have the same bits as on the
// host. Dense tensors only.
KernelFactory OnHost(absl::string_view op_type);

}  // namespace weft

#endif  // WEFT_OPS_GPU_ON_HOST_H_
