// Launches of kernels: for .cu files only.
#ifndef WEFT_OPS_GPU_LAUNCH_H_
#define WEFT_OPS_GPU_LAUNCH_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "ops/gpu/cuda_status.h"
#include "ops/kernel.h"

namespace weft {

inline cudaStream_t StreamOf(const KernelContext& ctx) {
  return static_cast<cudaStream_t>(ctx.stream);
}

namespace gpu {

constexpr int kThreads = 256;
// Fills any device; blocks loop over the remaining elements.
constexpr int64_t kMaxBlocks = 4096;

template <typename F>
__global__ void ForEachKernel(int64_t size, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) f(i);
}

// One block for each row.
template <typename F>
__global__ void ForEachRowKernel(int64_t rows, F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row);
}

// The sum of `value` over the kThreads threads of a block, in a fixed order, for all of them.
template <typename T>
__device__ T BlockSum(T value) {
  __shared__ T parts[kThreads];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  const T sum = parts[0];
  __syncthreads();  // before the next sum
  return sum;
}

template <typename T>
__device__ T BlockMax(T value) {
  __shared__ T parts[kThreads];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      parts[threadIdx.x] = max(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const T result = parts[0];
  __syncthreads();
  return result;
}

}  // namespace gpu

// f(i), a __device__ function object, for i in [0, size).
template <typename F>
absl::Status ForEach(const KernelContext& ctx, int64_t size, F f) {
  if (size == 0) return absl::OkStatus();
  const int64_t blocks = std::min((size + gpu::kThreads - 1) / gpu::kThreads, gpu::kMaxBlocks);
  gpu::ForEachKernel<<<static_cast<unsigned>(blocks), gpu::kThreads, 0, StreamOf(ctx)>>>(size, f);
  return CudaStatus(cudaGetLastError(), "kernel launch");
}

// out[i] = f(x[i]), and out[i] = f(x[i], y[i]), for ForEach.
template <typename T, typename F>
struct MapOne {
  F f;
  const T* x;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = static_cast<T>(f(x[i])); }
};
template <typename T, typename F>
struct MapTwo {
  F f;
  const T *x, *y;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = static_cast<T>(f(x[i], y[i])); }
};

// f(row), by all threads of a block together (gpu::kThreads of them, threadIdx.x), for each row.
template <typename F>
absl::Status ForEachRow(const KernelContext& ctx, int64_t rows, F f) {
  if (rows == 0) return absl::OkStatus();
  const int64_t blocks = std::min(rows, gpu::kMaxBlocks);
  gpu::ForEachRowKernel<<<static_cast<unsigned>(blocks), gpu::kThreads, 0, StreamOf(ctx)>>>(rows,
                                                                                            f);
  return CudaStatus(cudaGetLastError(), "kernel launch");
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_LAUNCH_H_
