// Tensors made from attributes, mostly initializers. The host computes them, so that training
// starts with the same bits on every device.
#include "ops/gpu/families.h"
#include "ops/gpu/on_host.h"

namespace weft {

void AddGpuCreationKernels(KernelTable* table) {
  for (const char* type :
       {"fill_constant", "gaussian_random", "truncated_gaussian_random", "uniform_random"}) {
    table->Add(type, OnHost(type));
  }
}

}  // namespace weft
