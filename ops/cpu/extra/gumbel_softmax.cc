// Samples of a relaxed categorical distribution. Every rank draws its own.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/status_macros.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/cpu/softmax_row.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

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
  absl::StatusOr<AxisRows> RowsOf(const Dims& dims) const {
    return dims.empty() ? AxisRows::Along(0, {1}) : AxisRows::Along(axis, dims);
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
    WEFT_ASSIGN_OR_RETURN(const AxisRows rows, attrs.RowsOf(x(ctx).dims()));
    std::uniform_real_distribution<double> draw(std::numeric_limits<double>::min(), 1);
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const double gumbel = -std::log(-std::log(draw(*engine)));
      to[i] = static_cast<T>((x.data<T>(ctx)[i] + gumbel) / attrs.temperature);
    }
    for (int64_t r = 0; r < rows.count(); ++r) {
      T* row = to + rows.Start(r);
      SoftmaxRow(row, rows.length, rows.stride, row);
      if (!hard || rows.length == 0) continue;
      int64_t best = 0;
      for (int64_t k = 1; k < rows.length; ++k) {
        if (row[k * rows.stride] > row[best * rows.stride]) best = k;
      }
      for (int64_t k = 0; k < rows.length; ++k) row[k * rows.stride] = k == best ? T(1) : T(0);
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
    WEFT_ASSIGN_OR_RETURN(const AxisRows rows, attrs.RowsOf(out(ctx).dims()));
    const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
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

void AddGumbelSoftmaxKernels(KernelTable* table) {
  table->Add("gumbel_softmax", GumbelSoftmax);
  table->Add("gumbel_softmax_grad", GumbelSoftmaxGrad);
}

}  // namespace weft
