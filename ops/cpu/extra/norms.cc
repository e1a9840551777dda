// p-norms of differences, slices scaled to a norm, and spectral normalization.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the p-norm of X - Y: (Σ |X - Y|^p)^(1/p), the largest or smallest difference for infinite
// p, the number of nonzero differences for p = 0.
absl::StatusOr<Kernel> Dist(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const double p = op.attrs().Float("p");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), -1));
    double sum = p == -HUGE_VAL ? HUGE_VAL : 0;
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t i, int64_t j) {
      const double a = std::fabs(double{xs[i]} - ys[j]);
      if (p == HUGE_VAL) {
        sum = std::max(sum, a);
      } else if (p == -HUGE_VAL) {
        sum = std::min(sum, a);
      } else {
        sum += p == 0 ? (a != 0) : std::pow(a, p);
      }
    });
    const bool has_root = p != 0 && std::isfinite(p);
    *out.data<T>(ctx) = static_cast<T>(has_root ? std::pow(sum, 1 / p) : sum);
    return absl::OkStatus();
  });
}

// X@GRAD = Out@GRAD sign(X - Y) (|X - Y| / Out)^(p - 1), for infinite p only where |X - Y| = Out,
// and Y@GRAD its negation, each summed over broadcast dimensions; 0 where X = Y.
absl::StatusOr<Kernel> DistGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const double p = op.attrs().Float("p");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx);
    const T distance = *out.data<T>(ctx);
    const double scale = *dout.data<T>(ctx);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), -1));
    std::vector<T> slopes;
    slopes.reserve(NumElements(shapes.out));
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t i, int64_t j) {
      const double difference = double{xs[i]} - ys[j], a = std::fabs(difference);
      double slope = 0;
      if (std::isinf(p)) {
        slope = static_cast<T>(a) == distance ? 1 : 0;
      } else if (p != 0 && distance != 0) {
        slope = std::pow(a / distance, p - 1);
      }
      if (a == 0) slope = 0;
      slopes.push_back(static_cast<T>(std::copysign(slope, difference) * scale));
    });
    if (T* to = dx.data_or_null<T>(ctx)) SumBroadcast(slopes.data(), shapes.out, shapes.x, 1, to);
    if (T* to = dy.data_or_null<T>(ctx)) {
      SumBroadcast(slopes.data(), shapes.out, shapes.y, -1, to);
    }
    return absl::OkStatus();
  });
}

// Norm = √(Σ X² + epsilon), Out = X / Norm.
absl::StatusOr<Kernel> L2Normalize(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out"), norm = op.out("Norm");
  const int64_t axis = op.attrs().Int("axis");
  const double epsilon = op.attrs().Float("epsilon");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    const T* xs = x.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
      double sum = epsilon;
      for (int64_t i = start; i < end; i += rows.stride) sum += double{xs[i]} * xs[i];
      const T root = static_cast<T>(std::sqrt(sum));
      for (int64_t i = start; i < end; i += rows.stride) out.data<T>(ctx)[i] = xs[i] / root;
      if (T* norms = norm.data_or_null<T>(ctx)) norms[r] = root;
    }
  });
}

// X@GRAD = (Out@GRAD - X (Σ X Out@GRAD) / Norm²) / Norm.
absl::StatusOr<Kernel> L2NormalizeGrad(OpKernel op) {
  const In x = op.in("X"), norm = op.in("Norm"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
      const double n = norm.data<T>(ctx)[r];
      double dot = 0;
      for (int64_t i = start; i < end; i += rows.stride) dot += double{xs[i]} * dys[i];
      for (int64_t i = start; i < end; i += rows.stride) {
        dx.data<T>(ctx)[i] = static_cast<T>((dys[i] - xs[i] * dot / (n * n)) / n);
      }
    }
  });
}

// Scales the layers along an axis down to a p-norm of max_norm.
struct Renorming {
  static constexpr double kEpsilon = 1e-7;  // Paddle's epsilon, in the divisor
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
absl::StatusOr<Kernel> Renorm(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const Renorming renorming(op.attrs());
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
absl::StatusOr<Kernel> RenormGrad(OpKernel op) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const Renorming renorming(op.attrs());
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    if (!(renorming.p > 0) || std::isinf(renorming.p)) {  // the norm has no derivative
      return absl::UnimplementedError(
          absl::StrCat("attribute p: expected a positive, finite number, found ", renorming.p));
    }
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
    return absl::OkStatus();
  });
}

// The tensor as a matrix whose rows are along dimension `dim`.
View MatrixRows(const Dims& dims, int64_t dim) {
  const View whole = WholeView(dims);
  View view{{dims[dim]}, {whole.strides[dim]}, 0};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (static_cast<int64_t>(d) == dim) continue;
    view.extents.push_back(dims[d]);
    view.strides.push_back(whole.strides[d]);
  }
  return view;
}

void Normalize(std::vector<double>* vector, double epsilon) {
  const double norm = std::sqrt(SumOfSquares(vector->data(), vector->size()));
  for (double& value : *vector) value /= norm + epsilon;
}

struct Estimate {
  std::vector<double> matrix, u, v;
  double sigma = 0;  // u' W v
};

template <typename T>
Estimate EstimateOf(const View& view, const T* weight, const T* u, const T* v, int64_t iterations,
                    double epsilon) {
  const int64_t rows = view.extents[0], columns = rows == 0 ? 0 : view.size() / rows;
  std::vector<T> elements(view.size());
  ReadView(view, weight, elements.data());
  Estimate e{{elements.begin(), elements.end()}, {u, u + rows}, {v, v + columns}};
  const auto times_v = [&] {
    std::vector<double> product(rows);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) product[i] += e.matrix[i * columns + j] * e.v[j];
    }
    return product;
  };
  for (int64_t n = 0; n < iterations; ++n) {
    e.v.assign(columns, 0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) e.v[j] += e.matrix[i * columns + j] * e.u[i];
    }
    Normalize(&e.v, epsilon);
    e.u = times_v();
    Normalize(&e.u, epsilon);
  }
  const std::vector<double> product = times_v();
  for (int64_t i = 0; i < rows; ++i) e.sigma += e.u[i] * product[i];
  return e;
}

// Out = Weight / sigma, after some power iterations from U and V.
absl::StatusOr<Kernel> SpectralNorm(OpKernel op) {
  const In weight = op.in("Weight"), u = op.in("U"), v = op.in("V");
  const Out out = op.out("Out");
  const OpAttrs& attrs = op.attrs();
  return op.Make(
      Floats(weight), [=, dim = attrs.Int("dim"), iterations = attrs.Int("power_iters"),
                       epsilon = attrs.Float("eps")](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const Estimate e = EstimateOf(MatrixRows(weight(ctx).dims(), dim), weight.data<T>(ctx),
                                      u.data<T>(ctx), v.data<T>(ctx), iterations, epsilon);
        for (int64_t i = 0; i < weight(ctx).size(); ++i) {
          out.data<T>(ctx)[i] = static_cast<T>(weight.data<T>(ctx)[i] / e.sigma);
        }
      });
}

// U and V, after the iterations, count as constants: Weight@GRAD = (Out@GRAD - Σ (Out@GRAD · Out) u
// v') / sigma. Paddle's CPU kernel uses the elementwise product of Out@GRAD with Σ Out u v' instead
// of the sum.
absl::StatusOr<Kernel> SpectralNormGrad(OpKernel op) {
  const In weight = op.in("Weight"), u = op.in("U"), v = op.in("V"), dout = op.in("Out@GRAD");
  const Out dweight = op.out("Weight@GRAD");
  const OpAttrs& attrs = op.attrs();
  const bool quirks = op.spec().paddle_cpu_quirks;
  return op.Make(Floats(weight), [=, dim = attrs.Int("dim"), iterations = attrs.Int("power_iters"),
                                  epsilon = attrs.Float("eps")](const KernelContext& ctx,
                                                                auto zero) {
    using T = decltype(zero);
    const View view = MatrixRows(weight(ctx).dims(), dim);
    const Estimate e =
        EstimateOf(view, weight.data<T>(ctx), u.data<T>(ctx), v.data<T>(ctx), iterations, epsilon);
    std::vector<T> grad(view.size());
    ReadView(view, dout.data<T>(ctx), grad.data());
    double along = 0, sum = 0;
    for (size_t i = 0; i < grad.size(); ++i) {
      along += grad[i] * e.matrix[i] / e.sigma;
      sum += e.matrix[i] / e.sigma;
    }
    const size_t columns = e.v.size();
    for (size_t i = 0; i < grad.size(); ++i) {
      const double part = e.u[i / columns] * e.v[i % columns] * (quirks ? grad[i] * sum : along);
      grad[i] = static_cast<T>((grad[i] - part) / e.sigma);
    }
    WriteView(view, grad.data(), dweight.data<T>(ctx));
  });
}

}  // namespace

void AddExtraNormKernels(KernelTable* table) {
  table->Add("dist", Dist);
  table->Add("dist_grad", DistGrad);
  table->Add("norm", L2Normalize);
  table->Add("norm_grad", L2NormalizeGrad);
  table->Add("renorm", Renorm);
  table->Add("renorm_grad", RenormGrad);
  table->Add("spectral_norm", SpectralNorm);
  table->Add("spectral_norm_grad", SpectralNormGrad);
}

}  // namespace weft
