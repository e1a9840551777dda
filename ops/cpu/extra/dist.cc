// Distances and products of vectors.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/softmax.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the p-norm of X - Y: (Σ |X - Y|^p)^(1/p), the largest or smallest difference for infinite
// p, the number of those that are not 0 for p = 0.
absl::StatusOr<Kernel> Dist(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const double p = spec.attrs.Float("p");
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

// X@GRAD = Out@GRAD sign(X - Y) (|X - Y| / Out)^(p - 1), for infinite p where |X - Y| = Out, and
// Y@GRAD the negative of that, each summed over the dimensions along which the operand was
// repeated; 0 where X = Y.
absl::StatusOr<Kernel> DistGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const double p = spec.attrs.Float("p");
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
    if (T* to = dx.data_or_null<T>(ctx)) {
      SumBroadcast(slopes.data(), shapes.out, shapes.x, 1, to);
    }
    if (T* to = dy.data_or_null<T>(ctx)) {
      SumBroadcast(slopes.data(), shapes.out, shapes.y, -1, to);
    }
    return absl::OkStatus();
  });
}

// Attribute dim; 9, its default, stands for the first dimension of size 3.
ClassRows VectorsOf(const Dims& dims, int64_t dim) {
  if (dim == 9) dim = std::find(dims.begin(), dims.end(), 3) - dims.begin();
  return *ClassRows::Along(dim, dims);
}

// to = a × b, of vectors of three elements along an axis.
template <typename T>
void CrossProducts(const ClassRows& rows, const T* a, const T* b, T* to) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t i = rows.Start(r), j = i + rows.stride, k = j + rows.stride;
    to[i] = a[j] * b[k] - a[k] * b[j];
    to[j] = a[k] * b[i] - a[i] * b[k];
    to[k] = a[i] * b[j] - a[j] * b[i];
  }
}

// Out = X × Y.
absl::StatusOr<Kernel> Cross(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t dim = spec.attrs.Int("dim");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    CrossProducts(VectorsOf(x(ctx).dims(), dim), x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx));
  });
}

// X@GRAD = Y × Out@GRAD, Y@GRAD = Out@GRAD × X.
absl::StatusOr<Kernel> CrossGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t dim = spec.attrs.Int("dim");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ClassRows rows = VectorsOf(x(ctx).dims(), dim);
    const T* dys = dout.data<T>(ctx);
    if (T* to = dx.data_or_null<T>(ctx)) CrossProducts(rows, y.data<T>(ctx), dys, to);
    if (T* to = dy.data_or_null<T>(ctx)) CrossProducts(rows, dys, x.data<T>(ctx), to);
  });
}

}  // namespace

void AddGeometryKernels(KernelTable* table) {
  table->Add("dist", Dist);
  table->Add("dist_grad", DistGrad);
  table->Add("cross", Cross);
  table->Add("cross_grad", CrossGrad);
}

}  // namespace weft
