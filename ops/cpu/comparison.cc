// Comparisons and logic: elementwise ops whose result is boolean.
#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

struct LogicalXor {
  template <typename T>
  bool operator()(T x, T y) const {
    return (x != 0) != (y != 0);
  }
};

// Out = f(X, Y), of operands of any element type.
template <typename F>
absl::StatusOr<Kernel> Binary(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Has("axis") ? spec.attrs.Int("axis") : -1;
  return op.InPlace().Make(AnyNumbers(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    MapBroadcast(shapes, x.data<T>(ctx), y.data<T>(ctx), out.data<bool>(ctx), F());
    return absl::OkStatus();
  });
}

// Out = not X.
absl::StatusOr<Kernel> LogicalNot(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().Make(AnyNumbers(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    std::transform(from, from + x(ctx).size(), out.data<bool>(ctx),
                   [](T value) { return value == T(0); });
  });
}

}  // namespace

void AddComparisonKernels(KernelTable* table) {
  table->Add("equal", Binary<std::equal_to<>>);
  table->Add("not_equal", Binary<std::not_equal_to<>>);
  table->Add("less_than", Binary<std::less<>>);
  table->Add("less_equal", Binary<std::less_equal<>>);
  table->Add("greater_than", Binary<std::greater<>>);
  table->Add("greater_equal", Binary<std::greater_equal<>>);
  table->Add("logical_and", Binary<std::logical_and<>>);
  table->Add("logical_or", Binary<std::logical_or<>>);
  table->Add("logical_xor", Binary<LogicalXor>);
  table->Add("logical_not", LogicalNot);
}

}  // namespace weft
