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

// --- The reductions ------------------------------------------------------------------------------
// Start, then Step for every element, then End, all in double precision or, of integers, 64 bits;
// Gradient is d result / d x times dy, given the number n of elements that make one result.

struct Sum {
  template <typename A>
  static A Step(A sum, A x) {
    return static_cast<A>(Wrapping(sum) + Wrapping(x));
  }
  template <typename A>
  static A Start() {
    return 0;
  }
  template <typename A>
  static A End(A sum, double) {
    return sum;
  }
  static double Gradient(double, double, double dy, double) { return dy; }
};

struct Mean : Sum {
  template <typename A>
  static A End(A sum, double n) {
    return Saturated<A>(sum / n);  // of no integers at all 0
  }
  static double Gradient(double, double, double dy, double n) { return dy / n; }
};

struct Max {
  template <typename A>
  static A Start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::min()
                                 : -std::numeric_limits<A>::infinity();
  }
  template <typename A>
  static A Step(A largest, A x) {
    return x > largest || x != x ? x : largest;
  }
  template <typename A>
  static A End(A largest, double) {
    return largest;
  }
  static double Gradient(double x, double y, double dy, double) { return x == y ? dy : 0; }
};

struct Min : Max {
  template <typename A>
  static A Start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::max()
                                 : std::numeric_limits<A>::infinity();
  }
  template <typename A>
  static A Step(A smallest, A x) {
    return x < smallest || x != x ? x : smallest;
  }
};

struct Prod : Sum {
  template <typename A>
  static A Start() {
    return 1;
  }
  template <typename A>
  static A Step(A product, A x) {
    return static_cast<A>(Wrapping(product) * Wrapping(x));
  }
  // The value that Paddle returns.
  static double Gradient(double x, double y, double dy, double) { return dy * y / x; }
};

struct Any : Sum {
  template <typename A>
  static A Step(A any, A x) {
    return any != 0 || x != 0;
  }
};

struct All : Sum {
  template <typename A>
  static A Start() {
    return 1;
  }
  template <typename A>
  static A Step(A all, A x) {
    return all != 0 && x != 0;
  }
};

struct SumOfAbsolutes : Sum {
  template <typename A>
  static A Step(A sum, A x) {
    return sum + std::abs(x);
  }
  static double Gradient(double x, double, double dy, double) {
    return x > 0 ? dy : x < 0 ? -dy : 0;
  }
};

struct SumOfSquaresOf : Sum {
  template <typename A>
  static A Step(A sum, A x) {
    return sum + x * x;
  }
  static double Gradient(double x, double, double dy, double) { return 2 * x * dy; }
};

struct Norm : SumOfSquaresOf {
  template <typename A>
  static A End(A sum, double) {
    return std::sqrt(sum);
  }
  static double Gradient(double x, double y, double dy, double) { return y == 0 ? 0 : dy * x / y; }
};

// --- The engine ----------------------------------------------------------------------------------

template <typename Op, typename T, typename To>
void Reduce(const Tensor& x, const Dims& kept, std::vector<char>* scratch, Tensor* out) {
  using A = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  const int64_t results = out->size();
  scratch->resize(results * sizeof(A));
  A* sums = reinterpret_cast<A*>(scratch->data());
  std::fill_n(sums, results, Op::template Start<A>());
  const T* from = x.data<T>();
  Walk(MakeLoopNest(x.dims(), x.dims(), kept),
       [&](int64_t i, int64_t j) { sums[j] = Op::template Step<A>(sums[j], from[i]); });
  const double n = results == 0 ? 0 : static_cast<double>(x.size()) / results;
  To* to = out->data<To>();
  for (int64_t j = 0; j < results; ++j) to[j] = static_cast<To>(Op::template End<A>(sums[j], n));
}

// The result has the type of X, or int64 for sums of smaller integers.
template <typename Op>
absl::StatusOr<Kernel> Forward(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(AllTypesButHalf(x),
                 [=, attrs = spec.attrs, scratch = std::vector<char>()](
                     const KernelContext& ctx, auto zero) mutable -> absl::Status {
                   using T = decltype(zero);
                   const Dims kept = KeptDims(attrs, x(ctx).dims());
                   const DType to = out(ctx).dtype();
                   if (to == x(ctx).dtype()) {
                     Reduce<Op, T, T>(x(ctx), kept, &scratch, &out(ctx));
                   } else if (to == DType::kInt64) {
                     Reduce<Op, T, int64_t>(x(ctx), kept, &scratch, &out(ctx));
                   } else {
                     return absl::UnimplementedError(
                         absl::StrCat("attribute out_dtype: no kernel that gives ", DTypeName(to),
                                      " for ", DTypeName(x(ctx).dtype())));
                   }
                   return absl::OkStatus();
                 });
}

template <typename Op>
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const In out = spec.Input("Out") >= 0 ? op.in("Out") : dout;  // which is then not read
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    const double n =
        dout(ctx).size() == 0 ? 0 : static_cast<double>(x(ctx).size()) / dout(ctx).size();
    Walk(MakeLoopNest(dims, dims, kept), [&](int64_t i, int64_t j) {
      to[i] = static_cast<T>(Op::Gradient(xs[i], ys[j], dys[j], n));
    });
  });
}

// X@GRAD = Out@GRAD times the product of the other elements. Paddle's kernel divides Out by X,
// which gives NaN where X is 0.
absl::StatusOr<Kernel> ProdGrad(const KernelSpec& spec) {
  if (spec.paddle_cpu_quirks) return Backward<Prod>(spec);
  OpKernel op(spec);
  op.Ignore({"Out"});
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const LoopNest nest = MakeLoopNest(dims, dims, kept);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    struct Factors {
      int64_t zeros = 0;
      double product = 1;  // of nonzero elements
    };
    std::vector<Factors> factors(dout(ctx).size());
    Walk(nest, [&](int64_t i, int64_t j) {
      if (xs[i] == 0) {
        ++factors[j].zeros;
      } else {
        factors[j].product *= xs[i];
      }
    });
    Walk(nest, [&](int64_t i, int64_t j) {
      const Factors& all = factors[j];
      const int64_t other_zeros = all.zeros - (xs[i] == 0);
      const double others = xs[i] == 0 ? all.product : all.product / xs[i];
      to[i] = other_zeros > 0 ? T(0) : static_cast<T>(dys[j] * others);
    });
  });
}

// The gradient of the largest, or smallest, element in equal shares to all elements that equal it.
absl::StatusOr<Kernel> SharedGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const LoopNest nest = MakeLoopNest(dims, dims, kept);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::vector<int64_t> equal(dout(ctx).size(), 0);
    Walk(nest, [&](int64_t i, int64_t j) { equal[j] += xs[i] == ys[j]; });
    Walk(nest, [&](int64_t i, int64_t j) {
      to[i] = xs[i] == ys[j] ? dys[j] / static_cast<T>(equal[j]) : T(0);
    });
  });
}

template <typename Op>
void AddReduction(const char* type, KernelTable* table) {
  table->Add(type, Forward<Op>);
  table->Add(absl::StrCat(type, "_grad"), Backward<Op>);
}

// --- Two passes ----------------------------------------------------------------------------------

// Out = log Σ exp X, with the largest X factored out.
absl::StatusOr<Kernel> LogSumExp(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=, attrs = spec.attrs, scratch = std::vector<char>()](
                                const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    Reduce<Max, T, T>(x(ctx), kept, &scratch, &out(ctx));
    const T* xs = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::vector<double> sums(out(ctx).size(), 0);
    Walk(MakeLoopNest(dims, dims, kept), [&](int64_t i, int64_t j) {
      sums[j] += xs[i] == to[j] ? 1 : std::exp(double{xs[i]} - to[j]);
    });
    for (size_t j = 0; j < sums.size(); ++j) to[j] += static_cast<T>(std::log(sums[j]));
  });
}

absl::StatusOr<Kernel> LogSumExpGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    Walk(MakeLoopNest(dims, dims, kept),
         [&](int64_t i, int64_t j) { to[i] = dys[j] * std::exp(xs[i] - ys[j]); });
  });
}

// Out = (Σ |X|^p)^(1/p); the largest, smallest |X| for p = ±∞; the number of nonzero elements for p
// = 0.
absl::StatusOr<Kernel> PNorm(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double p = spec.attrs.Float("porder");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const T* xs = x.data<T>(ctx);
    const double start = p == -HUGE_VAL ? HUGE_VAL : 0;
    std::vector<double> sums(out(ctx).size(), start);
    Walk(MakeLoopNest(dims, dims, kept), [&](int64_t i, int64_t j) {
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
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const double p = spec.attrs.Float("porder");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    Walk(MakeLoopNest(dims, dims, kept), [&](int64_t i, int64_t j) {
      const double a = std::fabs(double{xs[i]}), sign = xs[i] > 0 ? 1 : xs[i] < 0 ? -1 : 0;
      double slope = 0;
      if (std::isinf(p)) {
        slope = a == ys[j] ? 1 : 0;
      } else if (p != 0 && ys[j] != 0 && a != 0) {
        slope = std::pow(a / ys[j], p - 1);
      }
      to[i] = static_cast<T>(dys[j] * sign * slope);
    });
  });
}

}  // namespace

void AddReduceKernels(KernelTable* table) {
  AddReduction<Mean>("mean", table);
  AddReduction<Mean>("reduce_mean", table);
  AddReduction<Sum>("reduce_sum", table);
  AddReduction<Max>("reduce_max", table);
  AddReduction<Min>("reduce_min", table);
  table->Add("reduce_prod", Forward<Prod>);
  table->Add("reduce_prod_grad", ProdGrad);
  table->Add("reduce_amax", Forward<Max>);
  table->Add("reduce_amax_grad", SharedGrad);
  table->Add("reduce_amin", Forward<Min>);
  table->Add("reduce_amin_grad", SharedGrad);
  table->Add("reduce_any", Forward<Any>);
  table->Add("reduce_all", Forward<All>);
  AddReduction<Norm>("frobenius_norm", table);
  AddReduction<SumOfAbsolutes>("l1_norm", table);
  AddReduction<SumOfSquaresOf>("squared_l2_norm", table);
  table->Add("logsumexp", LogSumExp);
  table->Add("logsumexp_grad", LogSumExpGrad);
  table->Add("p_norm", PNorm);
  table->Add("p_norm_grad", PNormGrad);
}

}  // namespace weft
