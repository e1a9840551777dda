// The inverse of max pooling: elements put back where they came from.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Calls visit(element, place in Out) for all of Indices.
template <typename Visit>
absl::Status ForEachIndex(const Tensor& indices, const Dims& out, Visit visit) {
  return ForElementType<int32_t, int64_t>("input Indices", indices, [&](auto tag) -> absl::Status {
    const auto* from = indices.data<typename decltype(tag)::type>();
    const int64_t channel = indices.dim(2) * indices.dim(3), size = out[2] * out[3];
    for (int64_t i = 0; i < indices.size(); ++i) {
      if (from[i] < 0 || from[i] >= size) {
        return absl::InvalidArgumentError(absl::StrCat("input Indices: ", from[i], " at position ",
                                                       i, " is not in [0, ", size, ")"));
      }
      visit(i, i / channel * size + from[i]);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> Unpool(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), indices = op.in("Indices");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    return ForEachIndex(indices(ctx), out(ctx).dims(),
                        [&](int64_t element, int64_t place) { to[place] = from[element]; });
  });
}

absl::StatusOr<Kernel> UnpoolGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X", "Out"});
  const In indices = op.in("Indices"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    return ForEachIndex(indices(ctx), dout(ctx).dims(),
                        [&](int64_t element, int64_t place) { to[element] = from[place]; });
  });
}

}  // namespace

void AddUnpoolKernels(KernelTable* table) {
  table->Add("unpool", Unpool);
  table->Add("unpool_grad", UnpoolGrad);
}

}  // namespace weft
