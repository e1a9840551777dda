// Copies of a tensor with another element type.
#include "ops/formulas/cast.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename From, typename To>
struct CastElement {
  const From* from;
  To* to;
  __device__ void operator()(int64_t i) const { to[i] = formulas::Cast<To>()(from[i]); }
};

// Out = X, converted element by element.
absl::StatusOr<Kernel> Cast(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(x)).Make([=](const KernelContext& ctx) {
    return ForAnyType("input X", x(ctx), [&](auto from_tag) {
      return ForAnyType("output Out", out(ctx), [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        return ForEach(ctx, x(ctx).size(),
                       CastElement<From, To>{x.data<From>(ctx), out.data<To>(ctx)});
      });
    });
  });
}

}  // namespace

void AddGpuCopyKernels(KernelTable* table) { table->Add("cast", Cast); }

}  // namespace weft
