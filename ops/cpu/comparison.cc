// Comparisons, and logic of booleans and bits, elementwise.
#include "ops/formulas/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

ElementTypesOf<int32_t, int64_t, int8_t, uint8_t, int16_t, bool> Bits(In in) { return {in}; }

// Out = F(X, Y), for operands of the element types.
template <template <typename> class F, auto element_types = AllTypesButHalf>
absl::StatusOr<Kernel> Binary(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Has("axis") ? op.attrs().Int("axis") : -1;
  return op.InPlace().Make(
      element_types(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        using Result = decltype(F<T>()(zero, zero));
        WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                              AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
        MapBroadcast(shapes, x.data<T>(ctx), y.data<T>(ctx), out.data<Result>(ctx), F<T>());
        return absl::OkStatus();
      });
}

// Out = F(X, Y), a boolean.
template <typename F>
struct Asks {
  template <typename T>
  struct Of : F {};
};
template <typename F>
absl::StatusOr<Kernel> Ask2(const KernelSpec& spec) {
  return Binary<Asks<F>::template Of>(spec);
}

// Out = not X.
absl::StatusOr<Kernel> LogicalNot(OpKernel op) {
  const In x = op.in("X");
  return op.InPlace().MakeElementwise(AllTypesButHalf(x), op.out("Out"), formulas::LogicalNot(), x);
}

// Out = X with all bits flipped; of booleans their negation.
absl::StatusOr<Kernel> BitwiseNot(OpKernel op) {
  const In x = op.in("X");
  const auto flip = [](auto value) {
    using T = decltype(value);
    if constexpr (std::is_same_v<T, bool>) {
      return !value;
    } else {
      return static_cast<T>(~value);
    }
  };
  return op.InPlace().MakeElementwise(Bits(x), op.out("Out"), flip, x);
}

// |Input - Other| <= atol + rtol |Other|. Equal infinities are close, and everything is if the
// bound is infinite. NaN is close to NaN only with equal_nan.
struct Closeness {
  double atol = 0, rtol = 0;
  bool equal_nan;

  static absl::StatusOr<Closeness> Read(const OpAttrs& attrs) {
    Closeness result;
    for (const auto& [name, value] :
         {std::make_pair("atol", &Closeness::atol), std::make_pair("rtol", &Closeness::rtol)}) {
      if (absl::SimpleAtod(attrs.String(name), &(result.*value))) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("attribute ", name, ": expected a number, found ", attrs.String(name)));
    }
    result.equal_nan = attrs.Bool("equal_nan");
    return result;
  }
  bool operator()(double a, double b) const {
    if (std::isnan(a) || std::isnan(b)) return equal_nan && std::isnan(a) && std::isnan(b);
    return a == b || std::fabs(a - b) <= atol + rtol * std::fabs(b);
  }
};

absl::StatusOr<Kernel> IsClose(OpKernel op) {
  const In x = op.in("Input"), y = op.in("Other");
  WEFT_ASSIGN_OR_RETURN(const Closeness close, Closeness::Read(op.attrs()));
  return op.MakeElementwise(FloatsAndInts(x), op.out("Out"), close, x, y);
}

absl::StatusOr<Kernel> AllClose(OpKernel op) {
  const In x = op.in("Input"), y = op.in("Other");
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const Closeness close, Closeness::Read(op.attrs()));
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    *out.data<bool>(ctx) = std::equal(xs, xs + x(ctx).size(), y.data<T>(ctx), close);
  });
}

// Out = whether the predicate holds for an element.
template <typename Predicate>
absl::StatusOr<Kernel> Ask(OpKernel op) {
  const In x = op.in("X");
  return op.MakeElementwise(FloatsAndInts(x), op.out("Out"), Predicate(), x);
}

// Out = whether the predicate holds for any element, or for all.
enum class Quantifier { kAny, kAll };
template <Quantifier quantifier, typename Predicate>
absl::StatusOr<Kernel> AskOnce(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    const auto* from = x.data<decltype(zero)>(ctx);
    const auto* end = from + x(ctx).size();
    const Predicate holds;
    *out.data<bool>(ctx) = quantifier == Quantifier::kAny ? std::any_of(from, end, holds)
                                                          : std::all_of(from, end, holds);
  });
}

}  // namespace

void AddComparisonKernels(KernelTable* table) {
  table->Add("equal", Ask2<formulas::Equal>);
  table->Add("not_equal", Ask2<formulas::NotEqual>);
  table->Add("less_than", Ask2<formulas::LessThan>);
  table->Add("less_equal", Ask2<formulas::LessEqual>);
  table->Add("greater_than", Ask2<formulas::GreaterThan>);
  table->Add("greater_equal", Ask2<formulas::GreaterEqual>);
  table->Add("logical_and", Ask2<formulas::LogicalAnd>);
  table->Add("logical_or", Ask2<formulas::LogicalOr>);
  table->Add("logical_xor", Ask2<formulas::LogicalXor>);
  table->Add("logical_not", LogicalNot);
  table->Add("bitwise_and", Binary<std::bit_and, Bits>);
  table->Add("bitwise_or", Binary<std::bit_or, Bits>);
  table->Add("bitwise_xor", Binary<std::bit_xor, Bits>);
  table->Add("bitwise_not", BitwiseNot);
  table->Add("allclose", AllClose);
  table->Add("isclose", IsClose);
  table->Add("isfinite_v2", Ask<formulas::IsFinite>);
  table->Add("isinf_v2", Ask<formulas::IsInf>);
  table->Add("isnan_v2", Ask<formulas::IsNan>);
  table->Add("isfinite", AskOnce<Quantifier::kAll, formulas::IsFinite>);
  table->Add("isinf", AskOnce<Quantifier::kAny, formulas::IsInf>);
  table->Add("isnan", AskOnce<Quantifier::kAny, formulas::IsNan>);
}

}  // namespace weft
