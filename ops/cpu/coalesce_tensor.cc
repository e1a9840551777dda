// Several tensors in one buffer: ops/coalesce_tensor.h.
#include "ops/coalesce_tensor.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/families.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

absl::Status Clear(const KernelContext&, void* to, size_t bytes) {
  std::memset(to, 0, bytes);
  return absl::OkStatus();
}

absl::Status Copy(const KernelContext&, const void* from, size_t bytes, void* to) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status Fill(const KernelContext&, double value, Tensor* buffer) {
  return ForAnyType("output FusedOutput", *buffer, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::fill_n(buffer->data<T>(), buffer->size(), static_cast<T>(value));
    return absl::OkStatus();
  });
}

}  // namespace

void AddCoalesceTensorKernels(KernelTable* table) {
  table->Add("coalesce_tensor", [](const KernelSpec& spec) {
    return CoalesceTensor(spec, {Clear, Copy, Fill});
  });
}

}  // namespace weft
