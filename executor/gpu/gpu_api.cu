#include <new>
#include <stdexcept>
#include <string>

#include "base/status_macros.h"
#include "executor/gpu/gpu_api.h"
#include "executor/gpu/gpu_collective.h"
#include "ops/gpu/cuda_status.h"

namespace weft {
namespace {

struct CudaMark : public GpuApi::Mark {
  explicit CudaMark(cudaEvent_t cuda_event) : event(cuda_event) {}
  ~CudaMark() override { (void)cudaEventDestroy(event); }

  const cudaEvent_t event;
};

cudaEvent_t EventOf(GpuApi::Mark* mark) { return static_cast<CudaMark*>(mark)->event; }

class Cuda : public GpuApi {
 public:
  absl::StatusOr<int> CurrentDevice() override {
    int device = 0;
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
    return device;
  }

  absl::Status SetDevice(int device) override {
    return CudaStatus(cudaSetDevice(device), "cudaSetDevice");
  }

  absl::StatusOr<std::unique_ptr<Mark>> NewMark() override {
    cudaEvent_t event = nullptr;
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                    "cudaEventCreateWithFlags"));
    return std::make_unique<CudaMark>(event);
  }

  absl::Status Record(Mark* mark, void* stream) override {
    return CudaStatus(cudaEventRecord(EventOf(mark), static_cast<cudaStream_t>(stream)),
                      "cudaEventRecord");
  }

  absl::Status Wait(Mark* mark, void* stream) override {
    return CudaStatus(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), EventOf(mark), 0),
                      "cudaStreamWaitEvent");
  }

  bool HasPassed(Mark* mark) override {
    if (cudaEventQuery(EventOf(mark)) != cudaErrorNotReady) return true;
    (void)cudaGetLastError();  // or a later check of this thread would find it
    return false;
  }

  std::shared_ptr<void> Allocate(size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
      if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
      throw std::runtime_error(std::string(CudaStatus(error, "cudaMalloc").message()));
    }
    return std::shared_ptr<void>(memory, [](void* p) { (void)cudaFree(p); });
  }

  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    if (bytes == 0 || from == to) return absl::OkStatus();
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream)),
                      "cudaMemcpyAsync");
  }

  absl::Status RunCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                             absl::Span<void* const> out, int part, int num_parts,
                             void* stream) override {
    return RunGpuCollective(desc, in, out, part, num_parts, stream);
  }
};

}  // namespace

GpuApi* CudaApi() {
  static Cuda cuda;
  return &cuda;
}

}  // namespace weft
