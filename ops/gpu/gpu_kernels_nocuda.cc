#include "ops/kernel.h"

namespace weft {

const KernelTable& GpuKernels() {
  static const KernelTable* const table = new KernelTable;
  return *table;
}

}  // namespace weft
