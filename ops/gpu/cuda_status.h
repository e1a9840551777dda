// Errors of the CUDA runtime as statuses.
#ifndef WEFT_OPS_GPU_CUDA_STATUS_H_
#define WEFT_OPS_GPU_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

// Internal, with the name of the call and of the error.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(call, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_CUDA_STATUS_H_
