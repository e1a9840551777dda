// Reductions: one number for all elements along some dimensions, by the formulas of
// ops/formulas/reduction.h.
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/cpu/reduced_dims.h"
#include "ops/formulas/reduction.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T, typename A, typename Op>
struct LoadOf {
  Op op;
  const T* x;
  WEFT_DEVICE A operator()(int64_t i, int64_t) const { return op.Of(static_cast<A>(x[i])); }
};
template <typename A, typename Op>
struct JoinOf {
  Op op;
  WEFT_DEVICE A operator()(const A& a, const A& b) const { return op.Join(a, b); }
};
template <typename To, typename A, typename Op>
struct StoreEnd {
  double n;
  To* to;
  WEFT_DEVICE void operator()(int64_t at, A value) const {
    to[at] = static_cast<To>(Op::End(value, n));
  }
};

// The result has the type of X, or int64 for sums of smaller integers.
template <template <typename> class Op>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(
      AllTypesButHalf(x),
      [=, attrs = op.attrs(), scratch = std::make_shared<Tensor>()](const KernelContext& ctx,
                                                                    auto zero) -> absl::Status {
        using T = decltype(zero);
        const Dims& dims = x(ctx).dims();
        const int64_t results = out(ctx).size();
        const double n = results == 0 ? 0 : static_cast<double>(x(ctx).size()) / results;
        const auto reduce = [&](auto* to) {
          using To = std::decay_t<decltype(*to)>;
          // Numbers become whole before they are added up.
          using A =
              std::conditional_t<std::is_integral_v<T> || std::is_integral_v<To>, int64_t, double>;
          return ReduceTo(ctx, dims, KeptDims(attrs, dims), Op<A>::Start(),
                          LoadOf<T, A, Op<A>>{{}, x.data<T>(ctx)}, JoinOf<A, Op<A>>(),
                          ScratchLike(x(ctx), scratch.get()), StoreEnd<To, A, Op<A>>{n, to});
        };
        const DType to = out(ctx).dtype();
        if (to == x(ctx).dtype()) return reduce(out.data<T>(ctx));
        if (to == DType::kInt64) return reduce(out.data<int64_t>(ctx));
        return absl::UnimplementedError(absl::StrCat("attribute out_dtype: no kernel that gives ",
                                                     DTypeName(to), " for ",
                                                     DTypeName(x(ctx).dtype())));
      });
}

// X@GRAD of an element, given its result, the gradient of that, and the number of its elements.
template <template <typename> class Op>
struct GradientOf {
  WEFT_DEVICE double operator()(double x, double y, double dy, double n) const {
    return Op<double>::Gradient(x, y, dy, n);
  }
};
struct GradientOfLogSumExp {
  template <typename T>
  WEFT_DEVICE T operator()(T x, T y, T dy, double) const {
    return dy * exp(x - y);
  }
};
struct GradientOfPNorm {
  formulas::PNorm norm;
  WEFT_DEVICE double operator()(double x, double y, double dy, double) const {
    return norm.Gradient(x, y, dy);
  }
};

template <typename T, typename F>
struct ReductionGrad {
  F f;
  Loops loops;  // a: the element, b: its result
  const T *x, *y, *dy;
  double n;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t at, result;
    loops.At(i, &at, &result);
    to[at] = static_cast<T>(f(x[at], y[result], dy[result], n));
  }
};

template <typename F>
absl::StatusOr<Kernel> MakeBackward(OpKernel op, F f) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  // Out@GRAD substitutes for Out if that is not read.
  const In out = op.spec().Input("Out") >= 0 ? op.in("Out") : dout;
  const Out dx = op.out("X@GRAD");
  return op.Make(
      Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const Dims& dims = x(ctx).dims();
        const int64_t results = dout(ctx).size();
        const double n = results == 0 ? 0 : static_cast<double>(x(ctx).size()) / results;
        WEFT_ASSIGN_OR_RETURN(const Loops loops,
                              Loops::Make(MakeLoopNest(dims, dims, KeptDims(attrs, dims))));
        return ForEach(ctx, x(ctx).size(),
                       ReductionGrad<T, F>{f, loops, x.data<T>(ctx), out.data<T>(ctx),
                                           dout.data<T>(ctx), n, dx.data<T>(ctx)});
      });
}

template <template <typename> class Op>
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  return MakeBackward(spec, GradientOf<Op>());
}

// --- prod ----------------------------------------------------------------------------------------

struct StoreFactors {
  formulas::Factors* to;
  WEFT_DEVICE void operator()(int64_t at, const formulas::Factors& value) const { to[at] = value; }
};

template <typename T>
struct TimesOthers {
  Loops loops;
  const T *x, *dy;
  const formulas::Factors* factors;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t at, result;
    loops.At(i, &at, &result);
    to[at] = static_cast<T>(dy[result] * factors[result].Without(x[at]));
  }
};

template <typename T>
struct LoadFactors {
  const T* x;
  WEFT_DEVICE formulas::Factors operator()(int64_t i, int64_t) const {
    return formulas::Factors::Of(x[i]);
  }
};
struct JoinFactors {
  WEFT_DEVICE formulas::Factors operator()(const formulas::Factors& a,
                                           const formulas::Factors& b) const {
    return formulas::Factors::Join(a, b);
  }
};

// X@GRAD = Out@GRAD times the product of the other elements.
absl::StatusOr<Kernel> ProdGrad(OpKernel op) {
  op.Ignore({"Out"});
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(
      Floats(dout),
      [=, attrs = op.attrs(), all = std::make_shared<Tensor>(),
       scratch = std::make_shared<Tensor>()](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        using formulas::Factors;
        const Dims& dims = x(ctx).dims();
        const Dims kept = KeptDims(attrs, dims);
        ScratchLike(x(ctx), all.get())
            ->Resize(DType::kUint8, {dout(ctx).size() * static_cast<int64_t>(sizeof(Factors))});
        auto* const factors = static_cast<Factors*>(all->raw());
        WEFT_RETURN_IF_ERROR(ReduceTo(ctx, dims, kept, Factors{1, 0},
                                      LoadFactors<T>{x.data<T>(ctx)}, JoinFactors(),
                                      ScratchLike(x(ctx), scratch.get()), StoreFactors{factors}));
        WEFT_ASSIGN_OR_RETURN(const Loops loops, Loops::Make(MakeLoopNest(dims, dims, kept)));
        return ForEach(
            ctx, x(ctx).size(),
            TimesOthers<T>{loops, x.data<T>(ctx), dout.data<T>(ctx), factors, dx.data<T>(ctx)});
      });
}

// --- logsumexp, p_norm ---------------------------------------------------------------------------

template <typename T>
struct LoadExp {
  const T *x, *largest;
  WEFT_DEVICE double operator()(int64_t i, int64_t at) const {
    return x[i] == largest[at] ? 1 : exp(static_cast<double>(x[i]) - largest[at]);
  }
};
template <typename T>
struct AddLog {
  T* to;
  WEFT_DEVICE void operator()(int64_t at, double sum) const { to[at] += static_cast<T>(log(sum)); }
};

// Out = log Σ exp X, with the largest X factored out.
absl::StatusOr<Kernel> LogSumExp(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(
      Floats(x),
      [=, attrs = op.attrs(), scratch = std::make_shared<Tensor>()](const KernelContext& ctx,
                                                                    auto zero) -> absl::Status {
        using T = decltype(zero);
        using Max = formulas::Max<double>;
        const Dims& dims = x(ctx).dims();
        const Dims kept = KeptDims(attrs, dims);
        ScratchLike(x(ctx), scratch.get());
        T* const to = out.data<T>(ctx);
        WEFT_RETURN_IF_ERROR(ReduceTo(ctx, dims, kept, Max::Start(), LoadElement<T>{x.data<T>(ctx)},
                                      JoinOf<double, Max>(), scratch.get(), StoreElement<T>{to}));
        return ReduceTo(ctx, dims, kept, 0.0, LoadExp<T>{x.data<T>(ctx), to}, gpu::Plus(),
                        scratch.get(), AddLog<T>{to});
      });
}

template <typename T>
struct StorePNorm {
  formulas::PNorm norm;
  T* to;
  WEFT_DEVICE void operator()(int64_t at, double sum) const {
    to[at] = static_cast<T>(norm.End(sum));
  }
};

absl::StatusOr<Kernel> PNorm(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const formulas::PNorm norm(op.attrs().Float("porder"));
  return op.Make(Floats(x), [=, attrs = op.attrs(), scratch = std::make_shared<Tensor>()](
                                const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    using Of = formulas::PNorm;
    const Dims& dims = x(ctx).dims();
    return ReduceTo(ctx, dims, KeptDims(attrs, dims), norm.Start(),
                    LoadOf<T, double, Of>{norm, x.data<T>(ctx)}, JoinOf<double, Of>{norm},
                    ScratchLike(x(ctx), scratch.get()), StorePNorm<T>{norm, out.data<T>(ctx)});
  });
}

template <template <typename> class Op>
void AddReduction(const char* type, KernelTable* table) {
  table->Add(type, Forward<Op>, Backward<Op>);
}

}  // namespace

void AddGpuReduceKernels(KernelTable* table) {
  AddReduction<formulas::Mean>("mean", table);
  AddReduction<formulas::Mean>("reduce_mean", table);
  AddReduction<formulas::Sum>("reduce_sum", table);
  AddReduction<formulas::Max>("reduce_max", table);
  AddReduction<formulas::Min>("reduce_min", table);
  AddReduction<formulas::Norm>("frobenius_norm", table);
  AddReduction<formulas::SumOfAbsolutes>("l1_norm", table);
  AddReduction<formulas::SumOfSquaresOf>("squared_l2_norm", table);
  table->Add("reduce_prod", Forward<formulas::Prod>, ProdGrad);
  table->Add("reduce_any", Forward<formulas::Any>);
  table->Add("reduce_all", Forward<formulas::All>);
  table->Add("logsumexp", LogSumExp,
             [](const KernelSpec& spec) { return MakeBackward(spec, GradientOfLogSumExp()); });
  table->Add("p_norm", PNorm, [](const KernelSpec& spec) {
    return MakeBackward(spec, GradientOfPNorm{formulas::PNorm(spec.attrs.Float("porder"))});
  });
}

}  // namespace weft
