#include "ops/cpu/extra/families.h"
#include "ops/cpu/families.h"
#include "ops/kernel.h"

namespace weft {

const KernelTable& CpuKernels() {
  static const KernelTable* const table = [] {
    auto* table = new KernelTable;
    AddCoreKernels(table);
    AddExtraKernels(table);
    return table;
  }();
  return *table;
}

}  // namespace weft
