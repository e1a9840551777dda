#include "tests/training/read_ahead_gate.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace weft::testing {

FeedSource ReadAheadGate::Watch(FeedSource source) {
  source.read = [this, read = std::move(source.read)](int64_t step) {
    BeginRead(step);
    return read(step);
  };
  return source;
}

void ReadAheadGate::BeginRead(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_read_ = std::max(last_read_, step);
  has_begun_.notify_all();
}

// Batches are read one after the other: where one begins to be read, that before it is ready.
void ReadAheadGate::WaitIn(int64_t step) {
  std::unique_lock<std::mutex> lock(mutex_);
  has_begun_.wait(lock, [&] { return last_read_ >= std::min(step + 2, end_step_ - 1); });
}

absl::StatusOr<Kernel> ReadAheadGate::MakeWaiting(const KernelSpec& spec,
                                                  const KernelFactory& factory) {
  WEFT_ASSIGN_OR_RETURN(Kernel kernel, factory(spec));
  // The op runs once in a step, and is not left out.
  kernel.is_pointwise = false;
  kernel.views.clear();
  const auto next_step = std::make_shared<int64_t>(begin_step_);
  kernel.prepare = [this, next_step, prepare = std::move(kernel.prepare)](
                       const KernelContext& types) -> absl::StatusOr<KernelStep> {
    WEFT_ASSIGN_OR_RETURN(KernelStep step, prepare(types));
    return KernelStep([this, next_step, step = std::move(step)](const KernelContext& context) {
      WaitIn((*next_step)++);
      return step(context);
    });
  };
  return kernel;
}

KernelTable ReadAheadGate::KernelsThatWait(const std::string& op_type) {
  KernelTable kernels;
  for (const std::string& type : CpuKernels().op_types()) {
    const KernelFactory& factory = *CpuKernels().Find(type);
    if (type != op_type) {
      kernels.Add(type, factory);
      continue;
    }
    kernels.Add(type,
                [this, factory](const KernelSpec& spec) { return MakeWaiting(spec, factory); });
  }
  for (const std::string& type : CpuKernels().op_types_for_rows()) {
    kernels.AddForRows(type, *CpuKernels().FindForRows(type));
  }
  return kernels;
}

}  // namespace weft::testing
