// Comparisons and logic: elementwise ops whose result is boolean.
#include <cstdint>
#include <functional>

#include "base/status_macros.h"
#include "ops/cpu/binary.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
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
  WEFT_ASSIGN_OR_RETURN(const BinaryOp op, BinaryOp::Make(spec));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(op.x);
    const Tensor& y = *ctx.in(op.y);
    Tensor* out = ctx.out(op.out);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, op.Align(ctx, DType::kBool));
    return ForArithmeticType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(DType::kBool, shapes.out);
      MapBroadcast(shapes, x.data<T>(), y.data<T>(), out->data<bool>(), F());
      return absl::OkStatus();
    });
  });
}

// Out = not X.
absl::StatusOr<Kernel> LogicalNot(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    if (out == &x && x.dtype() != DType::kBool) {
      return absl::InvalidArgumentError(absl::StrCat("output Out: in place of input X, which is ",
                                                     DTypeName(x.dtype()),
                                                     ", but the result is bool"));
    }
    return ForArithmeticType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(DType::kBool, x.dims());
      const T* from = x.data<T>();
      bool* to = out->data<bool>();
      for (int64_t i = 0; i < x.size(); ++i) to[i] = from[i] == T(0);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddComparisonKernels(KernelTable* table) {
  table->Add("equal", Framed(Binary<std::equal_to<>>));
  table->Add("not_equal", Framed(Binary<std::not_equal_to<>>));
  table->Add("less_than", Framed(Binary<std::less<>>));
  table->Add("less_equal", Framed(Binary<std::less_equal<>>));
  table->Add("greater_than", Framed(Binary<std::greater<>>));
  table->Add("greater_equal", Framed(Binary<std::greater_equal<>>));
  table->Add("logical_and", Framed(Binary<std::logical_and<>>));
  table->Add("logical_or", Framed(Binary<std::logical_or<>>));
  table->Add("logical_xor", Framed(Binary<LogicalXor>));
  table->Add("logical_not", Framed(LogicalNot));
}

}  // namespace weft
