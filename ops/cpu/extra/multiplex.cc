// Each row from one of several tensors.
#include <algorithm>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Row i of Out = row i of X[Ids[i]].
absl::StatusOr<Kernel> Multiplex(const KernelSpec& spec) {
  OpKernel op(spec);
  const In ids = op.in("Ids"), x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto which, ReadIndices("Ids", ids(ctx), x.count()));
    const int64_t width = CountAfter(x(ctx).dims(), 0);
    T* to = out.elements<T>(ctx);
    for (size_t row = 0; row < which.size(); ++row) {
      const T* from = x.elements<T>(ctx, static_cast<int>(which[row]));
      to = std::copy_n(from + row * width, width, to);
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddMultiplexKernels(KernelTable* table) { table->Add("multiplex", Multiplex); }

}  // namespace weft
