// Reductions: one number for all elements along some dimensions. A new one is a struct and a line
// in AddReduceKernels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/reduced_dims.h"
#include "ops/formulas/reduction.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

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

// --- The engine ----------------------------------------------------------------------------------

template <template <typename> class Op, typename T, typename To>
void Reduce(const OpAttrs& attrs, const Tensor& x, std::vector<char>* scratch, Tensor* out) {
  // Numbers become whole before they are added up.
  using A = std::conditional_t<std::is_integral_v<T> || std::is_integral_v<To>, int64_t, double>;
  const int64_t results = out->size();
  scratch->resize(results * sizeof(A));
  A* sums = reinterpret_cast<A*>(scratch->data());
  std::fill_n(sums, results, Op<A>::Start());
  const T* from = x.data<T>();
  if (Op<A>::kAdds && std::is_same_v<T, float> && std::is_same_v<A, double> && results == 1) {
    sums[0] = SumOf<T>(x.size(), [=](int64_t i) { return Op<A>::Of(static_cast<A>(from[i])); });
  } else {
    WalkResults(attrs, x.dims(), [&](int64_t i, int64_t j) {
      sums[j] = Op<A>::Join(sums[j], Op<A>::Of(static_cast<A>(from[i])));
    });
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
  return op.Make(
      AllTypesButHalf(x), [=, attrs = op.attrs()](const KernelContext& types, auto zero) {
        using T = decltype(zero);
        std::vector<char> results(out(types).size() * sizeof(double));
        return [=, scratch = std::move(results)](const KernelContext& ctx) mutable -> absl::Status {
          const DType to = out(ctx).dtype();
          if (to == x(ctx).dtype()) {
            Reduce<Op, T, T>(attrs, x(ctx), &scratch, &out(ctx));
          } else if (to == DType::kInt64) {
            Reduce<Op, T, int64_t>(attrs, x(ctx), &scratch, &out(ctx));
          } else {
            return absl::UnimplementedError(
                absl::StrCat("attribute out_dtype: no kernel that gives ", DTypeName(to), " for ",
                             DTypeName(x(ctx).dtype())));
          }
          return absl::OkStatus();
        };
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
  if (op.spec().paddle_cpu_quirks) return Backward<formulas::Prod>(op.spec());
  op.Ignore({"Out"});
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::vector<formulas::Factors> factors(dout(ctx).size(), formulas::Factors{1, 0});
    WalkResults(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      factors[j] = formulas::Factors::Join(factors[j], formulas::Factors::Of(xs[i]));
    });
    WalkElements(attrs, x(ctx).dims(), [&](int64_t i, int64_t j) {
      to[i] = static_cast<T>(dys[j] * factors[j].Without(xs[i]));
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
    Reduce<formulas::Max, T, T>(attrs, x(ctx), &scratch, &out(ctx));
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

absl::StatusOr<Kernel> PNorm(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const formulas::PNorm norm(op.attrs().Float("porder"));
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    std::vector<double> sums(out(ctx).size(), norm.Start());
    WalkResults(attrs, x(ctx).dims(),
                [&](int64_t i, int64_t j) { sums[j] = norm.Join(sums[j], norm.Of(xs[i])); });
    for (size_t j = 0; j < sums.size(); ++j)
      out.data<T>(ctx)[j] = static_cast<T>(norm.End(sums[j]));
  });
}

absl::StatusOr<Kernel> PNormGrad(const KernelSpec& spec) {
  return MakeBackward(
      spec, [norm = formulas::PNorm(spec.attrs.Float("porder"))](
                double x, double y, double dy, double) { return norm.Gradient(x, y, dy); });
}

}  // namespace

void AddReduceKernels(KernelTable* table) {
  AddReduction<formulas::Mean>("mean", table);
  AddReduction<formulas::Mean>("reduce_mean", table);
  AddReduction<formulas::Sum>("reduce_sum", table);
  AddReduction<formulas::Max>("reduce_max", table);
  AddReduction<formulas::Min>("reduce_min", table);
  AddReduction<formulas::Norm>("frobenius_norm", table);
  AddReduction<formulas::SumOfAbsolutes>("l1_norm", table);
  AddReduction<formulas::SumOfSquaresOf>("squared_l2_norm", table);
  table->Add("reduce_prod", Forward<formulas::Prod>, ProdGrad);
  table->Add("reduce_amax", Forward<formulas::Max>, SharedGrad);
  table->Add("reduce_amin", Forward<formulas::Min>, SharedGrad);
  table->Add("reduce_any", Forward<formulas::Any>);
  table->Add("reduce_all", Forward<formulas::All>);
  table->Add("logsumexp", LogSumExp, LogSumExpGrad);
  table->Add("p_norm", PNorm, PNormGrad);
}

}  // namespace weft
