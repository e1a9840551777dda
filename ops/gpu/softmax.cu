// Softmax over one dimension of a tensor (the classes), its logarithm, and the cross entropy of its
// result against labels. A block computes a row.
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/gpu/axis_rows.h"
#include "ops/gpu/element_check.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

using gpu::Block;
using gpu::Rows;

// y = softmax of the row that starts at x, possibly in place. Like on the CPU, differences to the
// largest logit are limited to -64, so that no probability is 0.
template <typename T>
WEFT_DEVICE void SoftmaxRow(const Block& block, int64_t classes, int64_t stride, const T* x, T* y) {
  const T largest = block.Reduce(
      classes, x[0], [&](int64_t i) { return x[i * stride]; }, gpu::Larger());
  const auto power = [&](int64_t i) {
    const T difference = x[i * stride] - largest;
    return exp(difference < T(-64) ? T(-64) : difference);
  };
  const T total =
      static_cast<T>(block.Sum<double>(classes, [&](int64_t i) -> double { return power(i); }));
  block.ForEach(classes, [&](int64_t i) { y[i * stride] = power(i) / total; });
}

template <typename T>
struct SoftmaxOf {
  Rows rows;
  const T* x;
  T* y;
  WEFT_DEVICE void operator()(int64_t r, const Block& block) const {
    SoftmaxRow(block, rows.length, rows.stride, x + rows.Start(r), y + rows.Start(r));
  }
};

template <typename T>
absl::Status SoftmaxRows(const KernelContext& ctx, const AxisRows& rows, const T* x, T* y) {
  if (rows.length == 0) return absl::OkStatus();
  return ForEachRow(ctx, rows.count(), rows.length, SoftmaxOf<T>{Rows(rows), x, y});
}

// Out = softmax of X.
absl::StatusOr<Kernel> Softmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const AxisRows rows, AxisRows::Along(axis, x(ctx).dims()));
    return SoftmaxRows(ctx, rows, x.data<T>(ctx), out.data<T>(ctx));
  });
}

template <typename T>
struct SoftmaxGradOf {
  Rows rows;
  const T *p, *dp;
  T* to;
  WEFT_DEVICE void operator()(int64_t r, const Block& block) const {
    const T dot = static_cast<T>(block.Sum<double>(rows.length, [&](int64_t i) {
      return static_cast<double>(p[rows.At(r, i)]) * dp[rows.At(r, i)];
    }));
    block.ForEach(rows.length, [&](int64_t i) {
      const int64_t at = rows.At(r, i);
      to[at] = p[at] * (dp[at] - dot);
    });
  }
};

// X@GRAD = Out (Out@GRAD - sum over the row of Out Out@GRAD).
absl::StatusOr<Kernel> SoftmaxGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(dx, dout).Make(
      Floats(out), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows, AxisRows::Along(axis, out(ctx).dims()));
        return ForEachRow(
            ctx, rows.count(), rows.length,
            SoftmaxGradOf<T>{Rows(rows), out.data<T>(ctx), dout.data<T>(ctx), dx.data<T>(ctx)});
      });
}

// --- log_softmax ---------------------------------------------------------------------------------

template <typename T>
struct LogSoftmaxOf {
  Rows rows;
  const T* x;
  T* to;
  WEFT_DEVICE void operator()(int64_t r, const Block& block) const {
    const T largest = block.Reduce(
        rows.length, static_cast<T>(-INFINITY), [&](int64_t i) { return x[rows.At(r, i)]; },
        gpu::Larger());
    const double sum = block.Sum<double>(
        rows.length, [&](int64_t i) -> double { return exp(x[rows.At(r, i)] - largest); });
    const T log_sum = static_cast<T>(log(sum));
    block.ForEach(rows.length, [&](int64_t i) {
      const int64_t at = rows.At(r, i);
      to[at] = x[at] - largest - log_sum;
    });
  }
};

// Out = X - log Σ exp X.
absl::StatusOr<Kernel> LogSoftmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    return ForEachRow(ctx, rows.count(), rows.length,
                      LogSoftmaxOf<T>{Rows(rows), x.data<T>(ctx), out.data<T>(ctx)});
  });
}

template <typename T>
struct LogSoftmaxGradOf {
  Rows rows;
  const T *y, *dy;
  T* to;
  WEFT_DEVICE void operator()(int64_t r, const Block& block) const {
    const T sum = static_cast<T>(
        block.Sum<double>(rows.length, [&](int64_t i) -> double { return dy[rows.At(r, i)]; }));
    block.ForEach(rows.length, [&](int64_t i) {
      const int64_t at = rows.At(r, i);
      to[at] = dy[at] - exp(y[at]) * sum;
    });
  }
};

// X@GRAD = Out@GRAD - exp(Out) Σ Out@GRAD.
absl::StatusOr<Kernel> LogSoftmaxGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(dx, dout).InPlace(dx, out).Make(
      Floats(out), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const AxisRows rows = RowsAlong(out(ctx).dims(), axis);
        return ForEachRow(
            ctx, rows.count(), rows.length,
            LogSoftmaxGradOf<T>{Rows(rows), out.data<T>(ctx), dout.data<T>(ctx), dx.data<T>(ctx)});
      });
}

// --- softmax_with_cross_entropy ------------------------------------------------------------------

// The attributes that both directions read.
struct Options {
  int64_t axis, ignore_index;
  bool soft_label, use_softmax;

  explicit Options(const OpAttrs& attrs)
      : axis(attrs.Int("axis")),
        ignore_index(attrs.Int("ignore_index")),
        soft_label(attrs.Bool("soft_label")),
        use_softmax(attrs.Bool("use_softmax")) {}
};

// -log p; an infinite result counts as 1e20.
template <typename T>
WEFT_DEVICE T NegativeLog(T p) {
  const T loss = -log(p);
  return loss > T(1e20) ? T(1e20) : loss;
}

// The loss of a row, from its probabilities p.
template <typename T, typename Label>
struct HardLoss {
  Rows rows;
  const T* p;
  const Label* labels;
  int64_t ignore_index;
  gpu::ElementCheck check;
  T* loss;
  WEFT_DEVICE void operator()(int64_t r) const {
    const Label label = labels[r];
    if (label == ignore_index) {
      loss[r] = T(0);
    } else if (check.IsInRange(label, 0, rows.length, r)) {
      loss[r] = NegativeLog(p[rows.At(r, label)]);
    } else {
      loss[r] = gpu::NoValue<T>();
    }
  }
};

template <typename T>
struct SoftLoss {
  Rows rows;
  const T *p, *weights;
  T* loss;
  WEFT_DEVICE void operator()(int64_t r, const Block& block) const {
    const double sum = block.Sum<double>(rows.length, [&](int64_t i) -> double {
      const int64_t at = rows.At(r, i);
      return weights[at] * NegativeLog(p[at]);
    });
    block.Once([&] { loss[r] = static_cast<T>(sum); });
  }
};

// Softmax of Logits, which may already be probabilities, and the loss of every row.
absl::StatusOr<Kernel> SoftmaxWithCrossEntropy(OpKernel op) {
  const In logits = op.in("Logits"), label = op.in("Label");
  const Out softmax = op.out("Softmax"), loss = op.out("Loss");
  const Options options(op.attrs());
  return op.InPlace(softmax, logits)
      .Make(Floats(logits), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows,
                              AxisRows::Along(options.axis, logits(ctx).dims()));
        T* const p = softmax.data<T>(ctx);
        T* const to = loss.data<T>(ctx);
        if (options.use_softmax) {
          WEFT_RETURN_IF_ERROR(SoftmaxRows(ctx, rows, logits.data<T>(ctx), p));
        } else {
          WEFT_RETURN_IF_ERROR(Copy(ctx, logits(ctx).raw(), logits(ctx).bytes(), p));
        }
        if (options.soft_label) {
          return ForEachRow(ctx, rows.count(), rows.length,
                            SoftLoss<T>{Rows(rows), p, label.data<T>(ctx), to});
        }
        return ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
          using Label = typename decltype(tag)::type;
          return ForEach(
              ctx, rows.count(),
              HardLoss<T, Label>{Rows(rows), p, label.data<Label>(ctx), options.ignore_index,
                                 gpu::ElementCheck(ctx, "Label"), to});
        });
      });
}

// The derivative of a row's loss by one logit, given the label's weight for its class; if the
// logits are probabilities, the derivative of -weight log p.
template <typename T>
WEFT_DEVICE T LogitGradient(bool use_softmax, T p, T weight) {
  if (use_softmax) return p - weight;
  return weight == 0 ? T(0) : -weight / p;
}

template <typename T, typename Label>
struct HardLossGrad {
  Rows rows;
  bool use_softmax;
  const T* p;
  const Label* labels;
  int64_t ignore_index;
  gpu::ElementCheck check;
  const T* dloss;
  T* to;
  WEFT_DEVICE void operator()(int64_t at) const {
    const int64_t outer = at / (rows.length * rows.stride);
    const int64_t i = at / rows.stride % rows.length, r = outer * rows.stride + at % rows.stride;
    const Label label = labels[r];
    if (label == ignore_index) {
      to[at] = T(0);
    } else if (check.IsInRange(label, 0, rows.length, r)) {
      to[at] = LogitGradient(use_softmax, p[at], T(i == label ? 1 : 0)) * dloss[r];
    } else {
      to[at] = gpu::NoValue<T>();
    }
  }
};

template <typename T>
struct SoftLossGrad {
  Rows rows;
  bool use_softmax;
  const T *p, *weights, *dloss;
  T* to;
  WEFT_DEVICE void operator()(int64_t at) const {
    const int64_t outer = at / (rows.length * rows.stride);
    const int64_t r = outer * rows.stride + at % rows.stride;
    to[at] = LogitGradient(use_softmax, p[at], weights[at]) * dloss[r];
  }
};

// Logits@GRAD = that derivative times Loss@GRAD of the row; 0 in an ignored row.
absl::StatusOr<Kernel> SoftmaxWithCrossEntropyGrad(OpKernel op) {
  const In softmax = op.in("Softmax"), label = op.in("Label"), dloss = op.in("Loss@GRAD");
  const Out dlogits = op.out("Logits@GRAD");
  const Options options(op.attrs());
  return op.InPlace(dlogits, softmax)
      .Make(Floats(softmax), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows,
                              AxisRows::Along(options.axis, softmax(ctx).dims()));
        const int64_t size = softmax(ctx).size();
        const T* const p = softmax.data<T>(ctx);
        T* const to = dlogits.data<T>(ctx);
        if (options.soft_label) {
          return ForEach(ctx, size,
                         SoftLossGrad<T>{Rows(rows), options.use_softmax, p, label.data<T>(ctx),
                                         dloss.data<T>(ctx), to});
        }
        return ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
          using Label = typename decltype(tag)::type;
          return ForEach(
              ctx, size,
              HardLossGrad<T, Label>{Rows(rows), options.use_softmax, p, label.data<Label>(ctx),
                                     options.ignore_index, gpu::ElementCheck(ctx, "Label"),
                                     dloss.data<T>(ctx), to});
        });
      });
}

}  // namespace

void AddGpuSoftmaxKernels(KernelTable* table) {
  table->Add("softmax", Softmax, SoftmaxGrad);
  table->Add("log_softmax", LogSoftmax, LogSoftmaxGrad);
  table->Add("softmax_with_cross_entropy", SoftmaxWithCrossEntropy, SoftmaxWithCrossEntropyGrad);
}

}  // namespace weft
