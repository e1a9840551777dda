// Several tensors in one buffer: ops/coalesce_tensor.h.
#include "ops/coalesce_tensor.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

absl::Status Fill(const KernelContext& ctx, double value, Tensor* buffer) {
  return ForAnyType("output FusedOutput", *buffer, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return ForEach(ctx, buffer->size(), FillElement<T>{static_cast<T>(value), buffer->data<T>()});
  });
}

}  // namespace

void AddGpuCoalesceTensorKernels(KernelTable* table) {
  table->Add("coalesce_tensor", [](const KernelSpec& spec) {
    return CoalesceTensor(spec, {Clear, Copy, Fill});
  });
}

}  // namespace weft
