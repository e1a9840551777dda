// The largest element of each group of channels.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Calls visit(place in Out, first place in X, step) for every group of `groups` channels of X.
template <typename Visit>
void ForEachGroup(const Dims& out_dims, int64_t axis, int64_t groups, Visit visit) {
  const AxisRows rows = RowsAlong(out_dims, axis);
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t inner = r % rows.stride, outer = r / rows.stride;
    for (int64_t c = 0; c < rows.length; ++c) {
      const int64_t channel = outer * rows.length + c;
      visit(channel * rows.stride + inner, channel * groups * rows.stride + inner, rows.stride);
    }
  }
}

// Out = the largest of each group of channels.
absl::StatusOr<Kernel> Maxout(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis"), groups = spec.attrs.Int("groups");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    ForEachGroup(out(ctx).dims(), axis, groups, [&](int64_t place, int64_t first, int64_t step) {
      T largest = xs[first];
      for (int64_t k = 1; k < groups; ++k) largest = std::max(largest, xs[first + k * step]);
      out.data<T>(ctx)[place] = largest;
    });
  });
}

// X@GRAD = Out@GRAD at the first of the largest elements of a group, 0 elsewhere.
absl::StatusOr<Kernel> MaxoutGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis"), groups = spec.attrs.Int("groups");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachGroup(out(ctx).dims(), axis, groups, [&](int64_t place, int64_t first, int64_t step) {
      for (int64_t k = 0; k < groups; ++k) {
        if (xs[first + k * step] != out.data<T>(ctx)[place]) continue;
        to[first + k * step] = dout.data<T>(ctx)[place];
        break;
      }
    });
  });
}

}  // namespace

void AddMaxoutKernels(KernelTable* table) {
  table->Add("maxout", Maxout);
  table->Add("maxout_grad", MaxoutGrad);
}

}  // namespace weft
