// Paths of a beam search, followed back from the last step.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out[t, b, k] = the number at step t of the path that ends in beam k of the last step: Parents has
// the beam of the step before.
absl::StatusOr<Kernel> GatherTree(const KernelSpec& spec) {
  OpKernel op(spec);
  const In ids = op.in("Ids"), parents = op.in("Parents");
  const Out out = op.out("Out");
  return op.Make(Indices(ids), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t steps = ids(ctx).dim(0), batch = ids(ctx).dim(1), beams = ids(ctx).dim(2);
    WEFT_ASSIGN_OR_RETURN(const auto from, ReadIndices("Parents", parents(ctx), beams));
    const T* numbers = ids.data<T>(ctx);
    T* to = out.data<T>(ctx);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t k = 0; k < beams; ++k) {
        int64_t beam = k;
        for (int64_t t = steps; t-- > 0;) {
          const int64_t row = (t * batch + b) * beams;
          to[row + k] = numbers[row + beam];
          beam = from[row + beam];
        }
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddGatherTreeKernels(KernelTable* table) { table->Add("gather_tree", GatherTree); }

}  // namespace weft
