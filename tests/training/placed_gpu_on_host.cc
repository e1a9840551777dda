// With kernels of GPUs that are compiled for the host.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "executor/gpu/gpu_api_testing.h"
#include "executor/gpu/gpu_device_testing.h"
#include "executor/gpu/local_gpu_communicator.h"
#include "ops/op_kernel.h"
#include "tests/training/placed_gpu.h"

namespace weft::testing {
namespace {

FakeStream* StreamOf(const KernelContext& ctx) { return static_cast<FakeStream*>(ctx.stream); }

absl::Status CheckMemories(const KernelContext& ctx, bool on_host) {
  const auto check = [on_host](const Tensor* tensor) {
    if (tensor == nullptr || tensor->memory()->IsHost() == on_host) return absl::OkStatus();
    return absl::InternalError("an argument is in the memory of the other device");
  };
  if (on_host != (ctx.stream == nullptr)) return absl::InternalError("the other device's stream");
  for (const Tensor* input : ctx.inputs) WEFT_RETURN_IF_ERROR(check(input));
  for (const Tensor* output : ctx.outputs) WEFT_RETURN_IF_ERROR(check(output));
  return absl::OkStatus();
}

// The kernel, after `before` in each step.
template <typename Before>
KernelFactory After(Before before, const KernelFactory& factory) {
  return [before, factory](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    WEFT_ASSIGN_OR_RETURN(Kernel kernel, factory(spec));
    kernel.prepare = [before, prepare = kernel.prepare](
                         const KernelContext& types) -> absl::StatusOr<KernelStep> {
      WEFT_ASSIGN_OR_RETURN(KernelStep step, prepare(types));
      return KernelStep([before, step = std::move(step)](const KernelContext& ctx) {
        const absl::Status status = before(ctx);
        return status.ok() ? step(ctx) : status;
      });
    };
    return kernel;
  };
}

// They compute in the call, so the stream must be idle.
absl::Status BeforeOnDevice(const KernelContext& ctx) {
  WEFT_RETURN_IF_ERROR(CheckMemories(ctx, /*on_host=*/false));
  StreamOf(ctx)->Synchronize();
  return absl::OkStatus();
}

absl::Status BeforeRows(const KernelContext& ctx) {
  StreamOf(ctx)->Synchronize();
  return absl::OkStatus();
}

// As cudaMemcpyAsync: elements of pinned memory are copied when the stream comes to it. Those of
// other memory may be taken in the call; and they are copied there before it returns.
absl::Status CopyElements(const KernelContext& ctx, const Tensor& x, Tensor* out) {
  const size_t bytes = x.bytes();
  const void* const from = x.raw();
  void* const to = out->raw();
  if (x.memory()->IsHost() && !FakeGpuDevice::IsPinned(from)) {
    const auto* const begin = static_cast<const char*>(from);
    StreamOf(ctx)->Enqueue([staged = std::vector<char>(begin, begin + bytes), to] {
      std::memcpy(to, staged.data(), staged.size());
    });
    return absl::OkStatus();
  }
  StreamOf(ctx)->Enqueue([=] { std::memcpy(to, from, bytes); });
  if (!x.memory()->IsHost() && !FakeGpuDevice::IsPinned(to)) StreamOf(ctx)->Synchronize();
  return absl::OkStatus();
}

absl::StatusOr<Kernel> Copy(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto) {
    if (x(ctx).memory()->IsHost() == out(ctx).memory()->IsHost()) {
      return absl::InternalError("a copy within a memory");
    }
    return CopyElements(ctx, x(ctx), &out(ctx));
  });
}

bool IsCopy(const std::string& type) { return type == "memcpy_d2h" || type == "memcpy_h2d"; }

const KernelTable& DeviceKernels() {
  static const auto* const table = [] {
    auto* const made = new KernelTable;
    for (const std::string& type : GpuKernels().op_types()) {
      made->Add(type, IsCopy(type) ? Copy : After(BeforeOnDevice, *GpuKernels().Find(type)));
    }
    for (const std::string& type : GpuKernels().op_types_for_rows()) {
      const KernelFactory& factory = *GpuKernels().FindForRows(type);
      made->AddForRows(type,
                       IsCopy(type) ? After(BeforeRows, factory) : After(BeforeOnDevice, factory));
    }
    return made;
  }();
  return *table;
}

const KernelTable& HostKernels() {
  static const auto* const table = [] {
    const auto before = [](const KernelContext& ctx) { return CheckMemories(ctx, true); };
    auto* const made = new KernelTable;
    for (const std::string& type : CpuKernels().op_types()) {
      made->Add(type, After(before, *CpuKernels().Find(type)));
    }
    for (const std::string& type : CpuKernels().op_types_for_rows()) {
      made->AddForRows(type, After(before, *CpuKernels().FindForRows(type)));
    }
    return made;
  }();
  return *table;
}

}  // namespace

absl::StatusOr<PlacedGpu> NewPlacedGpu() {
  PlacedGpu gpu;
  gpu.new_device = [](int, Memory*) { return std::make_unique<FakeGpuDevice>(); };
  gpu.new_group = [fake = std::make_shared<FakeGpu>()](GroupOptions options) {
    return NewLocalGpuGroup(std::move(options), fake.get());
  };
  gpu.kernels = &DeviceKernels();
  gpu.host_kernels = &HostKernels();
  gpu.simulated = &GpuKernels();
  gpu.has_same_bits = true;
  return gpu;
}

}  // namespace weft::testing
