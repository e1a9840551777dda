// Binary search in sorted rows.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/order.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the insertion index of each of Values in its row of SortedSequence, before equal elements
// or, with `right`, after them. Paddle's CPU kernel puts -inf at the end.
absl::StatusOr<Kernel> SearchSorted(const KernelSpec& spec) {
  OpKernel op(spec);
  const In sequence = op.in("SortedSequence"), values = op.in("Values");
  const Out out = op.out("Out");
  const bool right = spec.attrs.Bool("right"), quirks = spec.paddle_cpu_quirks;
  return op.Make(FloatsAndInts(values), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T *row = sequence.data<T>(ctx), *vs = values.data<T>(ctx);
    const Dims& dims = sequence(ctx).dims();
    const int64_t length = dims.back();
    const bool one_row = dims.size() == 1;
    const int64_t per_row = one_row || values(ctx).rank() == 0 ? 0 : values(ctx).dims().back();
    return ForElementType<int64_t, int32_t>("output Out", out(ctx), [&](auto tag) {
      using Place = typename decltype(tag)::type;
      for (int64_t i = 0; i < values(ctx).size(); ++i) {
        const T* begin = one_row ? row : row + i / per_row * length;
        const T* place = right ? std::upper_bound(begin, begin + length, vs[i], Less<T>)
                               : std::lower_bound(begin, begin + length, vs[i], Less<T>);
        const bool at_end = quirks && std::isinf(static_cast<double>(vs[i]));
        out.data<Place>(ctx)[i] = static_cast<Place>(at_end ? length : place - begin);
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddSearchSortedKernels(KernelTable* table) { table->Add("searchsorted", SearchSorted); }

}  // namespace weft
