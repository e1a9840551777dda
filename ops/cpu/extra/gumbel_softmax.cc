// Functions with noise in them. Every rank draws its own.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/cpu/softmax.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X Noise: 1 where X >= 0, else drawn from [lower, upper), in a test the middle of that.
absl::StatusOr<Kernel> Rrelu(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), noise = op.out("Noise");
  const double lower = spec.attrs.Float("lower"), upper = spec.attrs.Float("upper");
  const bool is_test = spec.attrs.Bool("is_test");
  if (!(lower >= 0 && lower <= upper && upper <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attributes lower and upper: expected 0 <= ", lower, " <= ", upper, " <= 1"));
  }
  return op.InPlace(out, x).Make(
      Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        std::mt19937_64 unused, *engine = &unused;
        if (!is_test) {
          WEFT_ASSIGN_OR_RETURN(engine,
                                EngineOf(/*seed=*/0, &RandomState::dropout, ctx.random, &unused));
        }
        std::uniform_real_distribution<double> draw(lower, upper);
        const T* from = x.data<T>(ctx);
        T *to = out.data<T>(ctx), *factors = noise.data_or_null<T>(ctx);
        for (int64_t i = 0; i < x(ctx).size(); ++i) {
          const double slope = from[i] >= 0 ? 1 : is_test ? (lower + upper) / 2 : draw(*engine);
          to[i] = static_cast<T>(from[i] * slope);
          if (factors != nullptr) factors[i] = static_cast<T>(slope);
        }
        return absl::OkStatus();
      });
}

// X@GRAD = Out@GRAD Noise.
absl::StatusOr<Kernel> RreluGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In noise = op.in("Noise"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *factors = noise.data<T>(ctx), *from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    for (int64_t i = 0; i < dout(ctx).size(); ++i) to[i] = from[i] * factors[i];
  });
}

struct GumbelAttrs {
  int64_t axis;
  double temperature;

  static absl::StatusOr<GumbelAttrs> Read(const OpAttrs& attrs) {
    const double temperature = attrs.Float("temperature");
    if (!(temperature > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute temperature: expected more than 0, found ", temperature));
    }
    return GumbelAttrs{attrs.Int("axis"), temperature};
  }
  absl::StatusOr<ClassRows> RowsOf(const Dims& dims) const {
    return dims.empty() ? ClassRows::Along(0, {1}) : ClassRows::Along(axis, dims);
  }
};

// Out = softmax((X - log(-log U)) / temperature) with U drawn from (0, 1); where hard, 1 for the
// most probable class, else 0.
absl::StatusOr<Kernel> GumbelSoftmax(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const GumbelAttrs attrs, GumbelAttrs::Read(spec.attrs));
  const bool hard = spec.attrs.Bool("hard");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(/*seed=*/0, &RandomState::dropout, ctx.random, &own));
    WEFT_ASSIGN_OR_RETURN(const ClassRows rows, attrs.RowsOf(x(ctx).dims()));
    std::uniform_real_distribution<double> draw(std::numeric_limits<double>::min(), 1);
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const double gumbel = -std::log(-std::log(draw(*engine)));
      to[i] = static_cast<T>((x.data<T>(ctx)[i] + gumbel) / attrs.temperature);
    }
    for (int64_t r = 0; r < rows.count(); ++r) {
      T* row = to + rows.Start(r);
      SoftmaxRow(row, rows.classes, rows.stride, row);
      if (!hard || rows.classes == 0) continue;
      int64_t best = 0;
      for (int64_t k = 1; k < rows.classes; ++k) {
        if (row[k * rows.stride] > row[best * rows.stride]) best = k;
      }
      for (int64_t k = 0; k < rows.classes; ++k) row[k * rows.stride] = k == best ? T(1) : T(0);
    }
    return absl::OkStatus();
  });
}

// X@GRAD = Out (Out@GRAD - Σ Out Out@GRAD) / temperature: 0 where hard. Paddle's CPU kernel does
// not divide by the temperature.
absl::StatusOr<Kernel> GumbelSoftmaxGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  WEFT_ASSIGN_OR_RETURN(const GumbelAttrs attrs, GumbelAttrs::Read(spec.attrs));
  const double divisor = spec.paddle_cpu_quirks ? 1 : attrs.temperature;
  return op.InPlace().Make(Floats(out), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const ClassRows rows, attrs.RowsOf(out(ctx).dims()));
    const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.classes * rows.stride;
      double dot = 0;
      for (int64_t i = start; i < end; i += rows.stride) dot += double{ys[i]} * dys[i];
      for (int64_t i = start; i < end; i += rows.stride) {
        dx.data<T>(ctx)[i] = static_cast<T>(ys[i] * (dys[i] - dot) / divisor);
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddNoiseKernels(KernelTable* table) {
  table->Add("rrelu", Rrelu);
  table->Add("rrelu_grad", RreluGrad);
  table->Add("gumbel_softmax", GumbelSoftmax);
  table->Add("gumbel_softmax_grad", GumbelSoftmaxGrad);
}

}  // namespace weft
