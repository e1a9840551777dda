// Histograms of non-negative integers.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = how often each number from 0 on occurs in X, or the sums of its Weights.
absl::StatusOr<Kernel> BinCount(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), weights = op.in("Weights");
  const Out out = op.out("Out");
  const int64_t least = spec.attrs.Int("minlength");
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* numbers = x.data<T>(ctx);
    const int64_t size = x(ctx).size();
    int64_t bins = least;
    for (int64_t i = 0; i < size; ++i) {
      if (numbers[i] < 0 || numbers[i] >= kMaxElements) {
        return absl::InvalidArgumentError(absl::StrCat("input X: ", numbers[i], " at position ", i,
                                                       " is not in [0, ", kMaxElements, ")"));
      }
      bins = std::max<int64_t>(bins, int64_t{numbers[i]} + 1);
    }
    const Tensor* weight = weights.get(ctx);
    const auto count = [&](DType dtype, auto sum, auto weight_of) {
      out(ctx).Resize(dtype, {bins});
      auto* to = out.data<decltype(sum)>(ctx);
      std::fill_n(to, bins, sum);
      for (int64_t i = 0; i < size; ++i) to[numbers[i]] += weight_of(i);
      return absl::OkStatus();
    };
    if (weight == nullptr) return count(DType::kInt64, int64_t{0}, [](int64_t) { return 1; });
    return ForNumberType("input Weights", *weight, [&](auto tag) {
      using W = typename decltype(tag)::type;
      using Sum = std::conditional_t<std::is_same_v<W, float>, float, double>;
      const W* ws = weight->data<W>();
      return count(DTypeOf<Sum>::value, Sum(0), [=](int64_t i) { return static_cast<Sum>(ws[i]); });
    });
  });
}

}  // namespace

void AddBinCountKernels(KernelTable* table) { table->Add("bincount", BinCount); }

}  // namespace weft
