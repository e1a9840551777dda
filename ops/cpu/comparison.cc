// Comparisons and logic: elementwise ops with boolean results.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
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

// Out = f(X, Y), for operands of any element type.
template <typename F>
absl::StatusOr<Kernel> Binary(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Has("axis") ? spec.attrs.Int("axis") : -1;
  return op.InPlace().Make(
      AllTypesButHalf(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                              AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
        MapBroadcast(shapes, x.data<T>(ctx), y.data<T>(ctx), out.data<bool>(ctx), F());
        return absl::OkStatus();
      });
}

// Out = not X.
absl::StatusOr<Kernel> LogicalNot(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().Make(AllTypesButHalf(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    std::transform(from, from + x(ctx).size(), out.data<bool>(ctx),
                   [](T value) { return value == T(0); });
  });
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

absl::StatusOr<Kernel> IsClose(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input"), y = op.in("Other");
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const Closeness close, Closeness::Read(spec.attrs));
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    std::transform(xs, xs + x(ctx).size(), y.data<T>(ctx), out.data<bool>(ctx), close);
  });
}

absl::StatusOr<Kernel> AllClose(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input"), y = op.in("Other");
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const Closeness close, Closeness::Read(spec.attrs));
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    *out.data<bool>(ctx) = std::equal(xs, xs + x(ctx).size(), y.data<T>(ctx), close);
  });
}

// Out = whether the predicate holds for an element.
template <typename Question>
absl::StatusOr<Kernel> Ask(const KernelSpec& spec, Question question) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    const auto* from = x.data<decltype(zero)>(ctx);
    bool* to = out.data<bool>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) to[i] = question(static_cast<double>(from[i]));
  });
}

// Out = whether the predicate holds for any element, or for all.
enum class Quantifier { kAny, kAll };
template <typename Question>
absl::StatusOr<Kernel> AskOnce(const KernelSpec& spec, Quantifier quantifier, Question question) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    const auto* from = x.data<decltype(zero)>(ctx);
    const auto* end = from + x(ctx).size();
    const auto holds = [&](auto value) { return question(static_cast<double>(value)); };
    *out.data<bool>(ctx) = quantifier == Quantifier::kAny ? std::any_of(from, end, holds)
                                                          : std::all_of(from, end, holds);
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
  table->Add("allclose", AllClose);
  table->Add("isclose", IsClose);
  table->Add("isfinite_v2", [](const KernelSpec& spec) {
    return Ask(spec, [](double x) { return std::isfinite(x); });
  });
  table->Add("isinf_v2", [](const KernelSpec& spec) {
    return Ask(spec, [](double x) { return std::isinf(x); });
  });
  table->Add("isnan_v2", [](const KernelSpec& spec) {
    return Ask(spec, [](double x) { return std::isnan(x); });
  });
  table->Add("isfinite", [](const KernelSpec& spec) {
    return AskOnce(spec, Quantifier::kAll, [](double x) { return std::isfinite(x); });
  });
  table->Add("isinf", [](const KernelSpec& spec) {
    return AskOnce(spec, Quantifier::kAny, [](double x) { return std::isinf(x); });
  });
  table->Add("isnan", [](const KernelSpec& spec) {
    return AskOnce(spec, Quantifier::kAny, [](double x) { return std::isnan(x); });
  });
}

}  // namespace weft
