// Reductions: one number for all elements along some dimensions. A new one is a struct and a line
// in AddReduceKernels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// The dims of the input with 1 for reduced dimensions. Inference has checked the attributes, whose
// names differ between ops: a flag for all dimensions, and a list of them.
Dims KeptDims(const OpAttrs& attrs, const Dims& x) {
  if (attrs.Has("asvector") && attrs.Bool("asvector")) return Dims(x.size(), 1);
  if (attrs.Has("reduce_all") && attrs.Bool("reduce_all")) return Dims(x.size(), 1);
  std::vector<int64_t> reduced;
  if (attrs.Has("porder")) {
    reduced = {attrs.Int("axis")};
  } else if (attrs.Has("dim")) {
    reduced = attrs.Ints("dim");
  } else if (attrs.Has("axis")) {
    reduced = attrs.Ints("axis");
  }
  if (reduced.empty()) return Dims(x.size(), 1);
  Dims kept = x;
  const int64_t rank = x.size();
  for (int64_t d : reduced) {
    if (rank > 0) kept[d < 0 ? d + rank : d] = 1;  // a scalar may have dimensions 0 and -1
  }
  return kept;
}

// The loops over X, with the position of each element's result.
LoopNest Loops(const OpAttrs& attrs, const Dims& x) {
  return MakeLoopNest(x, x, KeptDims(attrs, x));
}

// Calls body(element of X, its result) for all elements, on the threads of the rank: those of one
// result in order, on one thread.
template <typename Body>
void WalkResults(const OpAttrs& attrs, const Dims& x, const Body& body) {
  const LoopNest nest = Loops(attrs, x);
  size_t kept = 0;
  while (kept < nest.extents.size() && nest.b_strides[kept] == 0) ++kept;
  WalkParts(nest, kept, NumElements(x), body);
}

// For gradients: body(element of X, its result) for all elements, in any order, on any thread.
template <typename Body>
void WalkElements(const OpAttrs& attrs, const Dims& x, const Body& body) {
  WalkParts(Loops(attrs, x), 0, NumElements(x), body);
}

// --- The reductions ------------------------------------------------------------------------------
// Start, then Step for every element, then End, in A: double or, for integers, int64_t. Gradient is
// d result / d x times dy, given the number n of elements that make one result. kAdds: a step adds
// Step(0, x).

template <typename A>
struct Sum {
  static constexpr bool kAdds = true;
  static A Step(A sum, A x) { return static_cast<A>(Wrapping(sum) + Wrapping(x)); }
  static A Start() { return 0; }
  static A End(A sum, double) { return sum; }
  static double Gradient(double, double, double dy, double) { return dy; }
};

template <typename A>
struct Mean : Sum<A> {
  static A End(A sum, double n) { return Saturated<A>(sum / n); }  // 0 for no integers
  static double Gradient(double, double, double dy, double n) { return dy / n; }
};

template <typename A>
struct Max : Sum<A> {
  static constexpr bool kAdds = false;
  static A Start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::min()
                                 : -std::numeric_limits<A>::infinity();
  }
  static A Step(A largest, A x) { return x > largest || x != x ? x : largest; }
  static double Gradient(double x, double y, double dy, double) { return x == y ? dy : 0; }
};

template <typename A>
struct Min : Max<A> {
  static A Start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::max()
                                 : std::numeric_limits<A>::infinity();
  }
  static A Step(A smallest, A x) { return x < smallest || x != x ? x : smallest; }
};

template <typename A>
struct Prod : Sum<A> {
  static constexpr bool kAdds = false;
  static A Start() { return 1; }
  static A Step(A product, A x) { return static_cast<A>(Wrapping(product) * Wrapping(x)); }
  // The value that Paddle returns.
  static double Gradient(double x, double y, double dy, double) { return dy * y / x; }
};

template <typename A>
struct Any : Sum<A> {
  static constexpr bool kAdds = false;
  static A Step(A any, A x) { return any != 0 || x != 0; }
};

template <typename A>
struct All : Sum<A> {
  static constexpr bool kAdds = false;
  static A Start() { return 1; }
  static A Step(A all, A x) { return all != 0 && x != 0; }
};

template <typename A>
struct SumOfAbsolutes : Sum<A> {
  static A Step(A sum, A x) { return sum + std::abs(x); }
  static double Gradient(double x, double, double dy, double) {
    return x > 0 ? dy : x < 0 ? -dy : 0;
  }
};

template <typename A>
struct SumOfSquaresOf : Sum<A> {
  static A Step(A sum, A x) { return sum + x * x; }
  static double Gradient(double x, double, double dy, double) { return 2 * x * dy; }
};

template <typename A>
struct Norm : SumOfSquaresOf<A> {
  static A End(A sum, double) { return std::sqrt(sum); }
  static double Gradient(double x, double y, double dy, double) { return y == 0 ? 0 : dy * x / y; }
};

// --- The engine ----------------------------------------------------------------------------------

template <template <typename> class Op, typename T, typename To>
void Reduce(const OpAttrs& attrs, const Tensor& x, std::vector<char>* scratch, Tensor* out) {
  using A = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  const int64_t results = out->size();
  scratch->resize(results * sizeof(A));
  A* sums = reinterpret_cast<A*>(scratch->data());
  std::fill_n(sums, results, Op<A>::Start());
  const T* from = x.data<T>();
  if (Op<A>::kAdds && std::is_same_v<T, float> && results == 1) {
    sums[0] = SumOf<T>(x.size(), [=](int64_t i) { return Op<A>::Step(0, from[i]); });
  } else {
    WalkResults(attrs, x.dims(),
                [&](int64_t i, int64_t j) { sums[j] = Op<A>::Step(sums[j], from[i]); });
  }
  const double n = results == 0 ? 0 : static_cast<double>(x.size()) / results;
  To* to = out->data<To>();
  for (int64_t j = 0; j < results; ++j) to[j] = static_cast<To>(Op<A>::End(sums[j], n));
}

// The result has the type of X, or int64 for sums of smaller integers.
template <template <typename> class Op>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(AllTypesButHalf(x),
                 [=, attrs = op.attrs(), scratch = std::vector<char>()](
                     const KernelContext& ctx, auto zero) mutable -> absl::Status {
                   using T = decltype(zero);
                   const DType to = out(ctx).dtype();
                   if (to == x(ctx).dtype()) {
                     Reduce<Op, T, T>(attrs, x(ctx), &scratch, &out(ctx));
                   } else if (to == DType::kInt64) {
                     Reduce<Op, T, int64_t>(attrs, x(ctx), &scratch, &out(ctx));
                   } else {
                     return absl::UnimplementedError(
                         absl::StrCat("attribute out_dtype: no kernel that gives ", DTypeName(to),
                                      " for ", DTypeName(x(ctx).dtype())));
                   }
                   return absl::OkStatus();
                 });
}

// X@GRAD = gradient(X, Out, Out@GRAD, n), n being the number of elements that make one result.
template <typename Gradient>
absl::StatusOr<Kernel> MakeBackward(OpKernel op, Gradient gradient) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  // Out@GRAD substitutes for Out if that is not read.
  const In out = op.spec().Input("Out") >= 0 ? op.in("Out") : dout;
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    const double n =
        dout(ctx).size() == 0 ? 0 : static_cast<double>(x(ctx).size()) / dout(ctx).size();
    WalkElements(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      to[i] = static_cast<T>(gradient(xs[i], ys[j], dys[j], n));
    });
  });
}

template <template <typename> class Op>
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  return MakeBackward(spec, [](double x, double y, double dy, double n) {
    return Op<double>::Gradient(x, y, dy, n);
  });
}

// X@GRAD = Out@GRAD times the product of the other elements. Paddle's kernel divides Out by X,
// which gives NaN where X is 0.
absl::StatusOr<Kernel> ProdGrad(OpKernel op) {
  if (op.spec().paddle_cpu_quirks) return Backward<Prod>(op.spec());
  op.Ignore({"Out"});
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    struct Factors {
      int64_t zeros = 0;
      double product = 1;  // of nonzero elements
    };
    std::vector<Factors> factors(dout(ctx).size());
    WalkResults(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      if (xs[i] == 0) {
        ++factors[j].zeros;
      } else {
        factors[j].product *= xs[i];
      }
    });
    WalkElements(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      const Factors& all = factors[j];
      const int64_t other_zeros = all.zeros - (xs[i] == 0);
      const double others = xs[i] == 0 ? all.product : all.product / xs[i];
      to[i] = other_zeros > 0 ? T(0) : static_cast<T>(dys[j] * others);
    });
  });
}

// The gradient of the largest, or smallest, element in equal shares to all elements that equal it.
absl::StatusOr<Kernel> SharedGrad(OpKernel op) {
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::vector<int64_t> equal(dout(ctx).size(), 0);
    WalkResults(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) { equal[j] += xs[i] == ys[j]; });
    WalkElements(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      to[i] = xs[i] == ys[j] ? dys[j] / static_cast<T>(equal[j]) : T(0);
    });
  });
}

template <template <typename> class Op>
void AddReduction(const char* type, KernelTable* table) {
  table->Add(type, Forward<Op>, Backward<Op>);
}

// --- Two passes ----------------------------------------------------------------------------------

// Out = log Σ exp X, with the largest X factored out.
absl::StatusOr<Kernel> LogSumExp(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=, attrs = op.attrs(), scratch = std::vector<char>()](
                                const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    Reduce<Max, T, T>(attrs, x(ctx), &scratch, &out(ctx));
    const T* xs = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::vector<double> sums(out(ctx).size(), 0);
    WalkResults(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      sums[j] += xs[i] == to[j] ? 1 : std::exp(double{xs[i]} - to[j]);
    });
    for (size_t j = 0; j < sums.size(); ++j) to[j] += static_cast<T>(std::log(sums[j]));
  });
}

absl::StatusOr<Kernel> LogSumExpGrad(const KernelSpec& spec) {
  return MakeBackward(spec, [](auto x, auto y, auto dy, double) { return dy * std::exp(x - y); });
}

// Out = (Σ |X|^p)^(1/p); the largest, smallest |X| for p = ±∞; the number of nonzero elements for p
// = 0.
absl::StatusOr<Kernel> PNorm(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double p = op.attrs().Float("porder");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const double start = p == -HUGE_VAL ? HUGE_VAL : 0;
    std::vector<double> sums(out(ctx).size(), start);
    WalkResults(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      const double a = std::fabs(double{xs[i]});
      if (p == HUGE_VAL) {
        sums[j] = std::max(sums[j], a);
      } else if (p == -HUGE_VAL) {
        sums[j] = std::min(sums[j], a);
      } else {
        sums[j] += p == 0 ? (a != 0) : std::pow(a, p);
      }
    });
    const bool has_root = p != 0 && std::isfinite(p);
    for (size_t j = 0; j < sums.size(); ++j) {
      out.data<T>(ctx)[j] = static_cast<T>(has_root ? std::pow(sums[j], 1 / p) : sums[j]);
    }
  });
}

absl::StatusOr<Kernel> PNormGrad(const KernelSpec& spec) {
  return MakeBackward(spec,
                      [p = spec.attrs.Float("porder")](double x, double y, double dy, double) {
                        const double a = std::fabs(x), sign = x > 0 ? 1 : x < 0 ? -1 : 0;
                        double slope = 0;
                        if (std::isinf(p)) {
                          slope = a == y ? 1 : 0;
                        } else if (p != 0 && y != 0 && a != 0) {
                          slope = std::pow(a / y, p - 1);
                        }
                        return dy * sign * slope;
                      });
}

}  // namespace

void AddReduceKernels(KernelTable* table) {
  AddReduction<Mean>("mean", table);
  AddReduction<Mean>("reduce_mean", table);
  AddReduction<Sum>("reduce_sum", table);
  AddReduction<Max>("reduce_max", table);
  AddReduction<Min>("reduce_min", table);
  AddReduction<Norm>("frobenius_norm", table);
  AddReduction<SumOfAbsolutes>("l1_norm", table);
  AddReduction<SumOfSquaresOf>("squared_l2_norm", table);
  table->Add("reduce_prod", Forward<Prod>, ProdGrad);
  table->Add("reduce_amax", Forward<Max>, SharedGrad);
  table->Add("reduce_amin", Forward<Min>, SharedGrad);
  table->Add("reduce_any", Forward<Any>);
  table->Add("reduce_all", Forward<All>);
  table->Add("logsumexp", LogSumExp, LogSumExpGrad);
  table->Add("p_norm", PNorm, PNormGrad);
}

}  // namespace weft
