// Spectral normalization: a matrix divided by an estimate of its largest singular value. From T.
// Miyato et al., "Spectral Normalization for Generative Adversarial Networks" (2018).
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The tensor as a matrix whose rows are along dimension `dim`.
View RowsAlong(const Dims& dims, int64_t dim) {
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
absl::StatusOr<Kernel> SpectralNorm(const KernelSpec& spec) {
  OpKernel op(spec);
  const In weight = op.in("Weight"), u = op.in("U"), v = op.in("V");
  const Out out = op.out("Out");
  const OpAttrs& attrs = spec.attrs;
  return op.Make(
      Floats(weight), [=, dim = attrs.Int("dim"), iterations = attrs.Int("power_iters"),
                       epsilon = attrs.Float("eps")](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const Estimate e = EstimateOf(RowsAlong(weight(ctx).dims(), dim), weight.data<T>(ctx),
                                      u.data<T>(ctx), v.data<T>(ctx), iterations, epsilon);
        for (int64_t i = 0; i < weight(ctx).size(); ++i) {
          out.data<T>(ctx)[i] = static_cast<T>(weight.data<T>(ctx)[i] / e.sigma);
        }
      });
}

// U and V, after the iterations, count as constants: Weight@GRAD = (Out@GRAD - Σ (Out@GRAD · Out) u
// v') / sigma. Paddle's CPU kernel uses the elementwise product of Out@GRAD with Σ Out u v' instead
// of the sum.
absl::StatusOr<Kernel> SpectralNormGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In weight = op.in("Weight"), u = op.in("U"), v = op.in("V"), dout = op.in("Out@GRAD");
  const Out dweight = op.out("Weight@GRAD");
  const OpAttrs& attrs = spec.attrs;
  const bool quirks = spec.paddle_cpu_quirks;
  return op.Make(Floats(weight), [=, dim = attrs.Int("dim"), iterations = attrs.Int("power_iters"),
                                  epsilon = attrs.Float("eps")](const KernelContext& ctx,
                                                                auto zero) {
    using T = decltype(zero);
    const View view = RowsAlong(weight(ctx).dims(), dim);
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

void AddSpectralNormKernels(KernelTable* table) {
  table->Add("spectral_norm", SpectralNorm);
  table->Add("spectral_norm_grad", SpectralNormGrad);
}

}  // namespace weft
