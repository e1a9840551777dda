// Launches of kernels: for .cu files only.
//
// gcc compiles these files too, for tests on machines without a GPU (:gpu_kernels_on_host): then a
// launch is a loop of the host. All code of a kernel but these loops is the same.
#ifndef WEFT_OPS_GPU_LAUNCH_H_
#define WEFT_OPS_GPU_LAUNCH_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "ops/gpu/block.h"
#include "ops/kernel.h"
#ifdef __CUDACC__
#include "ops/gpu/cuda_status.h"
#endif

namespace weft {

#ifdef __CUDACC__

inline cudaStream_t StreamOf(const KernelContext& ctx) {
  return static_cast<cudaStream_t>(ctx.stream);
}

namespace gpu {

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
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row, Block());
}

}  // namespace gpu

// f(i), a function object marked WEFT_DEVICE, for i in [0, size), in any order.
template <typename F>
absl::Status ForEach(const KernelContext& ctx, int64_t size, F f) {
  if (size == 0) return absl::OkStatus();
  const int64_t blocks = std::min((size + gpu::kThreads - 1) / gpu::kThreads, gpu::kMaxBlocks);
  gpu::ForEachKernel<<<static_cast<unsigned>(blocks), gpu::kThreads, 0, StreamOf(ctx)>>>(size, f);
  return CudaStatus(cudaGetLastError(), "kernel launch");
}

// f(row, block) for each row, in any order, by the threads of a gpu::Block together. `width`: the
// elements of a row, about, of which the number of threads depends.
template <typename F>
absl::Status ForEachRow(const KernelContext& ctx, int64_t rows, int64_t width, F f) {
  if (rows == 0) return absl::OkStatus();
  const int64_t blocks = std::min(rows, gpu::kMaxBlocks);
  gpu::
      ForEachRowKernel<<<static_cast<unsigned>(blocks), gpu::ThreadsFor(width), 0, StreamOf(ctx)>>>(
          rows, f);
  return CudaStatus(cudaGetLastError(), "kernel launch");
}

// Waits for the stream.
inline absl::Status Synchronize(const KernelContext& ctx) {
  return CudaStatus(cudaStreamSynchronize(StreamOf(ctx)), "cudaStreamSynchronize");
}

// Fills memory with zeros.
inline absl::Status Clear(const KernelContext& ctx, void* to, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemsetAsync(to, 0, bytes, StreamOf(ctx)), "cudaMemsetAsync");
}

// Copies within the memory of the device, or between it and the host's, unless the place is the
// same.
inline absl::Status Copy(const KernelContext& ctx, const void* from, size_t bytes, void* to) {
  if (bytes == 0 || from == to) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(ctx)),
                    "cudaMemcpyAsync");
}

#else  // on the host

// From the last one to the first, so that a test fails if the order matters.
template <typename F>
absl::Status ForEach(const KernelContext&, int64_t size, F f) {
  for (int64_t i = size; i-- > 0;) f(i);
  return absl::OkStatus();
}

template <typename F>
absl::Status ForEachRow(const KernelContext&, int64_t rows, int64_t width, F f) {
  for (int64_t row = rows; row-- > 0;) f(row, gpu::Block(gpu::ThreadsFor(width)));
  return absl::OkStatus();
}

inline std::atomic<int64_t> num_synchronizations{0};  // in the process

inline absl::Status Synchronize(const KernelContext&) {
  ++num_synchronizations;
  return absl::OkStatus();
}

inline absl::Status Clear(const KernelContext&, void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
  return absl::OkStatus();
}

inline absl::Status Copy(const KernelContext&, const void* from, size_t bytes, void* to) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

#endif

// The arguments of a launch have at most 4 KiB.
constexpr size_t kArgumentBytes = 3800;

// Some elements of the host's, as arguments of a launch.
template <typename T>
struct UploadedPart {
  static constexpr int64_t kCount = kArgumentBytes / sizeof(T);
  T elements[kCount];
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const { to[i] = elements[i]; }
};

// Copies from the host's memory, which may change on return, without waiting for the device.
template <typename T>
absl::Status Upload(const KernelContext& ctx, const T* from, int64_t count, T* to) {
  UploadedPart<T> part;
  for (int64_t done = 0; done < count; done += part.kCount) {
    const int64_t size = std::min(count - done, part.kCount);
    std::copy_n(from + done, size, part.elements);
    part.to = to + done;
    const absl::Status status = ForEach(ctx, size, part);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename T>
struct FillElement {
  T value;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const { to[i] = value; }
};

// out[i] = f(x[i]), f(x[i], y[i]), f(x[i], y[i], z[i]), for ForEach.
template <typename T, typename F, typename To = T>
struct MapOne {
  F f;
  const T* x;
  To* out;
  WEFT_DEVICE void operator()(int64_t i) const { out[i] = static_cast<To>(f(x[i])); }
};
template <typename T, typename F, typename To = T>
struct MapTwo {
  F f;
  const T *x, *y;
  To* out;
  WEFT_DEVICE void operator()(int64_t i) const { out[i] = static_cast<To>(f(x[i], y[i])); }
};
template <typename T, typename F, typename To = T>
struct MapThree {
  F f;
  const T *x, *y, *z;
  To* out;
  WEFT_DEVICE void operator()(int64_t i) const { out[i] = static_cast<To>(f(x[i], y[i], z[i])); }
};

}  // namespace weft

#endif  // WEFT_OPS_GPU_LAUNCH_H_
