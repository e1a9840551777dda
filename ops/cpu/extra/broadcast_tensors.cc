// Several tensors repeated to common dims.
#include <algorithm>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/strided_view.h"
#include "ops/cpu/view_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out[i] = X[i] broadcast to the dims of all; meshgrid: X[i] along dimension i.
enum class Repeats { kBroadcast, kMeshgrid };

template <Repeats how>
View RepeatedView(const Dims& x, const Dims& out, size_t i) {
  if (how == Repeats::kBroadcast) return ExpandedView(x, out);
  View view{out, Dims(out.size(), 0), 0};
  view.strides[i] = 1;
  return view;
}

template <Repeats how>
absl::StatusOr<Kernel> RepeatAll(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < x.count(); ++i) {
      if (out.get(ctx, i) == nullptr) continue;
      ReadView(RepeatedView<how>(x(ctx, i).dims(), out(ctx, i).dims(), i), x.elements<T>(ctx, i),
               out.elements<T>(ctx, i));
    }
  });
}

template <Repeats how>
absl::StatusOr<Kernel> RepeatAllGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dout = op.in(how == Repeats::kBroadcast ? "Out@GRAD" : "outputs@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < dx.count(); ++i) {
      if (dx.get(ctx, i) == nullptr) continue;
      T* to = dx.data<T>(ctx, i);
      std::fill_n(to, dx(ctx, i).size(), T(0));
      AddToView(RepeatedView<how>(dx(ctx, i).dims(), dout(ctx, i).dims(), i), dout.data<T>(ctx, i),
                to);
    }
  });
}

}  // namespace

void AddBroadcastTensorsKernels(KernelTable* table) {
  table->Add("broadcast_tensors", RepeatAll<Repeats::kBroadcast>);
  table->Add("broadcast_tensors_grad", RepeatAllGrad<Repeats::kBroadcast>);
  table->Add("meshgrid", RepeatAll<Repeats::kMeshgrid>);
  table->Add("meshgrid_grad", RepeatAllGrad<Repeats::kMeshgrid>);
}

}  // namespace weft
