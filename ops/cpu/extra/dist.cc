// The p-norm of a difference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/extra/families.h"
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

}  // namespace

void AddDistKernels(KernelTable* table) {
  table->Add("dist", Dist);
  table->Add("dist_grad", DistGrad);
}

}  // namespace weft
