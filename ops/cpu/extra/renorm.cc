// Slices along a dimension scaled down to a norm that they must not exceed.
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The layers along an axis, scaled down to a p-norm of max_norm.
struct Renorming {
  static constexpr double kEpsilon = 1e-7;  // Paddle's, in the divisor
  int64_t axis;
  double p, max_norm;

  explicit Renorming(const OpAttrs& attrs)
      : axis(attrs.Int("axis")), p(attrs.Float("p")), max_norm(attrs.Float("max_norm")) {}

  // Adds value_of(i), for each element i of a tensor, to the sum of its layer.
  template <typename ValueOf>
  static std::vector<double> SumLayers(const AxisRows& rows, ValueOf value_of) {
    std::vector<double> sums(rows.length, 0.0);
    for (int64_t i = 0; i < rows.count() * rows.length; ++i) sums[LayerOf(rows, i)] += value_of(i);
    return sums;
  }
  static int64_t LayerOf(const AxisRows& rows, int64_t i) { return i / rows.stride % rows.length; }
  template <typename T>
  std::vector<double> Norms(const AxisRows& rows, const T* xs) const {
    std::vector<double> norms =
        SumLayers(rows, [&](int64_t i) { return std::pow(std::fabs(double{xs[i]}), p); });
    for (double& norm : norms) norm = std::pow(norm, 1 / p);
    return norms;
  }
  double Scale(double norm) const { return norm > max_norm ? max_norm / (norm + kEpsilon) : 1; }
};

// Out = X max_norm / norm in layers whose norm exceeds max_norm, X in others.
absl::StatusOr<Kernel> Renorm(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const Renorming renorming(spec.attrs);
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const AxisRows rows = RowsAlong(x(ctx).dims(), renorming.axis);
    const std::vector<double> norms = renorming.Norms(rows, xs);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      out.data<T>(ctx)[i] =
          static_cast<T>(xs[i] * renorming.Scale(norms[Renorming::LayerOf(rows, i)]));
    }
  });
}

// X@GRAD = s (Out@GRAD - sign(X) |X|^(p - 1) Σ X Out@GRAD / norm^(p - 1) / norm) with s = max_norm
// / norm in layers whose norm exceeds max_norm, Out@GRAD in others.
absl::StatusOr<Kernel> RenormGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const Renorming renorming(spec.attrs);
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    const AxisRows rows = RowsAlong(x(ctx).dims(), renorming.axis);
    const std::vector<double> norms = renorming.Norms(rows, xs);
    const std::vector<double> dots =
        Renorming::SumLayers(rows, [&](int64_t i) { return double{xs[i]} * dys[i]; });
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t layer = Renorming::LayerOf(rows, i);
      const double a = xs[i], norm = norms[layer], scale = renorming.Scale(norm);
      double along = 0;  // the derivative of the norm, times Σ X Out@GRAD / norm
      if (norm > renorming.max_norm && a != 0) {
        along = std::copysign(std::pow(std::fabs(a) / norm, renorming.p - 1), a) * dots[layer] /
                (norm + Renorming::kEpsilon);
      }
      dx.data<T>(ctx)[i] = static_cast<T>(scale * (dys[i] - along));
    }
  });
}

}  // namespace

void AddRenormKernels(KernelTable* table) {
  table->Add("renorm", Renorm);
  table->Add("renorm_grad", RenormGrad);
}

}  // namespace weft
