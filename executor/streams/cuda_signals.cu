#include <cuda.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/streams/cuda_signals.h"
#include "ops/gpu/cuda_status.h"

namespace weft {
namespace {

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

// The driver's function, which is not linked: binaries start without a driver.
absl::StatusOr<WaitValue> FindWaitValue() {
  constexpr char kName[] = "cuStreamWaitValue32";
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  // The function of CUDA 11.7, which a driver need not be told to enable.
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(kName, &found, 11070, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result);
#endif
  WEFT_RETURN_IF_ERROR(CudaStatus(error, "cudaGetDriverEntryPoint"));
  if (found == nullptr || result != cudaDriverEntryPointSuccess) {
    return absl::UnavailableError(absl::StrCat("the driver of the GPU does not have ", kName));
  }
  WaitValue function = nullptr;
  std::memcpy(&function, &found, sizeof(function));
  return function;
}

// In page-locked memory of the host, which the device reads.
class CudaCounter : public StreamSignals::Counter {
 public:
  static absl::StatusOr<std::unique_ptr<Counter>> Make() {
    WEFT_ASSIGN_OR_RETURN(const WaitValue wait, FindWaitValue());
    void* count = nullptr;
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaHostAlloc(&count, sizeof(uint32_t), cudaHostAllocMapped), "cudaHostAlloc"));
    *static_cast<uint32_t*>(count) = 0;
    auto counter = std::unique_ptr<CudaCounter>(new CudaCounter(wait, count));
    void* on_device = nullptr;
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaHostGetDevicePointer(&on_device, count, 0), "cudaHostGetDevicePointer"));
    counter->on_device_ = reinterpret_cast<CUdeviceptr>(on_device);
    return counter;
  }
  ~CudaCounter() override { (void)cudaFreeHost(count_); }

  void AdvanceTo(uint32_t count) override {
    __atomic_store_n(static_cast<uint32_t*>(count_), count, __ATOMIC_RELEASE);
  }

  absl::Status WaitFor(uint32_t count, void* stream) {
    // Compares the difference as a signed number, so that counts may wrap around.
    const CUresult result =
        wait_(static_cast<CUstream>(stream), on_device_, count, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cuStreamWaitValue32: CUresult ", result));
  }

 private:
  CudaCounter(WaitValue wait, void* count) : wait_(wait), count_(count) {}

  const WaitValue wait_;
  void* const count_;
  CUdeviceptr on_device_ = 0;
};

class Signals : public StreamSignals {
 public:
  absl::StatusOr<std::unique_ptr<Counter>> NewCounter() override { return CudaCounter::Make(); }

  absl::Status WaitFor(Counter* counter, uint32_t count, void* stream) override {
    return static_cast<CudaCounter*>(counter)->WaitFor(count, stream);
  }

  absl::Status CallAfter(void* stream, std::function<void()> f) override {
    auto call = std::make_unique<std::function<void()>>(std::move(f));
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), Call, call.get()),
                   "cudaLaunchHostFunc"));
    (void)call.release();  // Call deletes it; lost if the device fails
    return absl::OkStatus();
  }

 private:
  static void CUDART_CB Call(void* f) {
    const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(f));
    (*call)();
  }
};

}  // namespace

StreamSignals* CudaSignals() {
  static Signals signals;
  return &signals;
}

}  // namespace weft
