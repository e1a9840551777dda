// Indices as one-hot vectors.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out[i..., k] = 1 where X[i...] is k. Numbers that are none of the classes give a row of zeros
// where allow_out_of_range is set.
absl::StatusOr<Kernel> OneHot(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t depth = spec.attrs.Int("depth");
  const bool allows_others = spec.attrs.Bool("allow_out_of_range");
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) {
    const auto* classes = x.data<decltype(zero)>(ctx);
    return ForArithmeticType("output Out", out(ctx), [&](auto tag) -> absl::Status {
      using T = typename decltype(tag)::type;
      T* to = out.data<T>(ctx);
      std::fill_n(to, out(ctx).size(), T(0));
      for (int64_t i = 0; i < x(ctx).size(); ++i) {
        if (classes[i] >= 0 && classes[i] < depth) {
          to[i * depth + classes[i]] = T(1);
        } else if (!allows_others) {
          return absl::InvalidArgumentError(absl::StrCat("input X: ", classes[i], " at position ",
                                                         i, " is not in [0, ", depth, ")"));
        }
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddOneHotKernels(KernelTable* table) { table->Add("one_hot_v2", OneHot); }

}  // namespace weft
