#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

#include "base/status_macros.h"
#include "ops/gpu/convert_halves.h"
#include "ops/gpu/cuda_memory.h"
#include "ops/gpu/cuda_status.h"

namespace weft {
namespace {

[[noreturn]] void ThrowForAllocation(cudaError_t error, absl::string_view call) {
  (void)cudaGetLastError();  // so that the next kernel does not report it
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  // The error of an earlier kernel, which is no lack of memory.
  throw std::runtime_error(std::string(CudaStatus(error, call).message()));
}

class DeviceMemory : public CudaMemory {
 public:
  explicit DeviceMemory(int ordinal) : ordinal_(ordinal) {}

  int64_t changes() const override { return changes_; }
  bool IsHost() const override { return false; }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    void* memory = nullptr;
    cudaError_t error = cudaSetDevice(ordinal_);
    if (error == cudaSuccess) error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) ThrowForAllocation(error, "cudaMalloc");
    ++changes_;
    // cudaFree waits for work that may still use the memory.
    return std::shared_ptr<void>(memory, [this](void* p) {
      (void)cudaFree(p);
      ++changes_;
    });
  }

  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return CopyNow(from, bytes, to, cudaMemcpyHostToDevice);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return CopyNow(from, bytes, to, cudaMemcpyDeviceToHost);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    if (bytes == 0) return absl::OkStatus();
    if (stream == nullptr) {
      // A stream of the executor may still write what is copied: the default stream does not wait.
      WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
      WEFT_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
      return CopyNow(from, bytes, to, cudaMemcpyDeviceToDevice);
    }
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream)),
                      "cudaMemcpyAsync");
  }

  absl::Status ConvertHalves(DType from_type, const void* from, DType to_type, void* to,
                             int64_t count, void* stream) override {
    KernelContext ctx;
    ctx.stream = stream;
    return weft::ConvertHalves(ctx, from_type, from, to_type, to, count);
  }

 private:
  // The streams of the executor and the default stream do not wait for each other: the copy must be
  // done on return.
  absl::Status CopyNow(const void* from, size_t bytes, void* to, cudaMemcpyKind kind) {
    if (bytes == 0) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(to, from, bytes, kind), "cudaMemcpy"));
    return CudaStatus(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  const int ordinal_;
  std::atomic<int64_t> changes_{0};
};

class PinnedMemory : public Memory {
 public:
  explicit PinnedMemory(int ordinal) : ordinal_(ordinal) {}

  bool IsHost() const override { return true; }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    void* memory = nullptr;
    cudaError_t error = cudaSetDevice(ordinal_);
    // Pages, so aligned.
    if (error == cudaSuccess) error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    if (error != cudaSuccess) ThrowForAllocation(error, "cudaHostAlloc");
    return std::shared_ptr<void>(memory, [](void* p) { (void)cudaFreeHost(p); });
  }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    return HostMemory()->Copy(from, bytes, to, stream);
  }

 private:
  const int ordinal_;
};

}  // namespace

std::unique_ptr<Memory> NewPinnedMemory(int ordinal) {
  return std::make_unique<PinnedMemory>(ordinal);
}

absl::StatusOr<std::unique_ptr<CudaMemory>> NewCudaMemory(int ordinal) {
  int count = 0;
  const absl::Status status = CudaStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!status.ok()) return absl::UnavailableError(status.message());
  if (ordinal < 0 || ordinal >= count) {
    return absl::UnavailableError(absl::StrCat("no CUDA device ", ordinal, ": there are ", count));
  }
  return std::make_unique<DeviceMemory>(ordinal);
}

}  // namespace weft
