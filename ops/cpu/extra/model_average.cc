// average_accumulates: sums of a parameter over a window of steps, for
// paddle.incubate.ModelAverage.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The number of steps that one sum accumulates, which limits the rounding of fp32.
constexpr int64_t kMostSummed = 16384;

// sum_1 has the steps since the last multiple of kMostSummed, sum_2 the earlier ones. When the
// window is full, both move to sum_3, whose number of steps is `old_num_accumulates`.
absl::StatusOr<Kernel> AverageAccumulates(OpKernel op) {
  const In param = op.in("param"), in_1 = op.in("in_sum_1"), in_2 = op.in("in_sum_2"),
           in_3 = op.in("in_sum_3");
  const In in_number = op.in("in_num_accumulates"), in_old = op.in("in_old_num_accumulates"),
           in_updates = op.in("in_num_updates");
  const Out out_1 = op.out("out_sum_1"), out_2 = op.out("out_sum_2"), out_3 = op.out("out_sum_3");
  const Out out_number = op.out("out_num_accumulates"), out_old = op.out("out_old_num_accumulates"),
            out_updates = op.out("out_num_updates");
  const double window = op.attrs().Float("average_window");
  const int64_t least = op.attrs().Int("min_average_window"),
                most = op.attrs().Int("max_average_window");
  op.InPlace();
  return op.Make(Floats(param), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t updates = *in_updates.data<int64_t>(ctx) + 1;
    int64_t number = *in_number.data<int64_t>(ctx) + 1, old = *in_old.data<int64_t>(ctx);
    const bool moves_on = updates % kMostSummed == 0;
    const double wanted =
        std::min(static_cast<double>(most), static_cast<double>(updates) * window);
    const bool is_full = number >= least && static_cast<double>(number) >= std::trunc(wanted);
    const T *p = param.data<T>(ctx), *a = in_1.data<T>(ctx), *b = in_2.data<T>(ctx),
            *c = in_3.data<T>(ctx);
    T *to_1 = out_1.data<T>(ctx), *to_2 = out_2.data<T>(ctx), *to_3 = out_3.data<T>(ctx);
    for (int64_t i = 0; i < param(ctx).size(); ++i) {
      const T recent = a[i] + p[i], before = moves_on ? b[i] + recent : b[i], last = c[i];
      const T current = moves_on ? T(0) : recent;
      to_1[i] = is_full ? T(0) : current;
      to_2[i] = is_full ? T(0) : before;
      to_3[i] = is_full ? current + before : last;
    }
    if (is_full) {
      old = number;
      number = 0;
    }
    *out_updates.data<int64_t>(ctx) = updates;
    *out_number.data<int64_t>(ctx) = number;
    *out_old.data<int64_t>(ctx) = old;
    return absl::OkStatus();
  });
}

}  // namespace

void AddModelAverageKernels(KernelTable* table) {
  table->Add("average_accumulates", AverageAccumulates);
}

}  // namespace weft
