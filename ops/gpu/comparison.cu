// Comparisons and logic, elementwise.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/formulas/comparison.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/loops.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T, typename F>
struct AskBroadcast {
  Loops loops;
  const T *x, *y;
  bool* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t in_x, in_y;
    loops.At(i, &in_x, &in_y);
    out[i] = F()(x[in_x], y[in_y]);
  }
};

// Out = F(X, Y).
template <typename F>
absl::StatusOr<Kernel> Binary(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Has("axis") ? op.attrs().Int("axis") : -1;
  return op.InPlace().Make(
      AllTypesButHalf(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                              AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
        WEFT_ASSIGN_OR_RETURN(const Loops loops,
                              Loops::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
        return ForEach(
            ctx, out(ctx).size(),
            AskBroadcast<T, F>{loops, x.data<T>(ctx), y.data<T>(ctx), out.data<bool>(ctx)});
      });
}

// Out = F(X).
template <typename F, auto types>
absl::StatusOr<Kernel> Unary(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().Make(types(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, x(ctx).size(),
                   MapOne<T, F, bool>{F(), x.data<T>(ctx), out.data<bool>(ctx)});
  });
}

}  // namespace

void AddGpuComparisonKernels(KernelTable* table) {
  table->Add("equal", Binary<formulas::Equal>);
  table->Add("not_equal", Binary<formulas::NotEqual>);
  table->Add("less_than", Binary<formulas::LessThan>);
  table->Add("less_equal", Binary<formulas::LessEqual>);
  table->Add("greater_than", Binary<formulas::GreaterThan>);
  table->Add("greater_equal", Binary<formulas::GreaterEqual>);
  table->Add("logical_and", Binary<formulas::LogicalAnd>);
  table->Add("logical_or", Binary<formulas::LogicalOr>);
  table->Add("logical_xor", Binary<formulas::LogicalXor>);
  table->Add("logical_not", Unary<formulas::LogicalNot, AllTypesButHalf>);
  table->Add("isfinite_v2", Unary<formulas::IsFinite, FloatsAndInts>);
  table->Add("isinf_v2", Unary<formulas::IsInf, FloatsAndInts>);
  table->Add("isnan_v2", Unary<formulas::IsNan, FloatsAndInts>);
}

}  // namespace weft
