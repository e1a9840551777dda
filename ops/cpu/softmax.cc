// Softmax over one dimension of a tensor (the classes), its logarithm, and the cross entropy of its
// result against labels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/softmax_row.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

using dnnl::memory;

memory::desc DescOf(const AxisRows& rows) {
  return memory::desc({rows.outer, rows.length, rows.stride}, memory::data_type::f32,
                      memory::format_tag::abc);
}

dnnl::softmax_forward::primitive_desc DescribeSoftmax(const AxisRows& rows) {
  return {{dnnl::prop_kind::forward_training, DescOf(rows), /*axis=*/1},
          DnnlAttributes(),
          DnnlCpuEngine()};
}

DnnlPrimitive MakeSoftmax(const AxisRows& rows) {
  const memory::desc desc = DescOf(rows);
  const auto forward = DescribeSoftmax(rows);
  return DnnlPrimitive(dnnl::softmax_forward(forward), forward.scratchpad_desc(),
                       {{DNNL_ARG_SRC, desc, desc}}, {{DNNL_ARG_DST, desc, desc}});
}

DnnlPrimitive MakeSoftmaxGrad(const AxisRows& rows) {
  const memory::desc desc = DescOf(rows);
  const dnnl::softmax_backward::primitive_desc backward({desc, desc, /*axis=*/1}, DnnlAttributes(),
                                                        DnnlCpuEngine(), DescribeSoftmax(rows));
  return DnnlPrimitive(dnnl::softmax_backward(backward), backward.scratchpad_desc(),
                       {{DNNL_ARG_DST, desc, desc}, {DNNL_ARG_DIFF_DST, desc, desc}},
                       {{DNNL_ARG_DIFF_SRC, desc, desc}});
}

// The lower bound of SoftmaxRow, applied to oneDNN's result: e^-64 of the largest probability of a
// row.
void BoundBelow(const AxisRows& rows, int64_t size, float* p) {
  constexpr float kLeast = 1.6038108905486379e-28F;
  int is_any_below = 0;  // not, unless logits are large or masked
  Vectorized([&is_any_below, p, size] {
    int any = 0;
    for (int64_t i = 0; i < size; ++i) any |= p[i] < kLeast ? 1 : 0;
    is_any_below = any;
  });
  if (is_any_below == 0) return;
  for (int64_t r = 0; r < rows.count(); ++r) {
    float* const row = p + rows.Start(r);
    if (rows.stride == 1 && rows.length >= kFewClasses) {
      const float least = kLeast * LargestOf(row, rows.length);
      ForEach<float>(rows.length, [=](int64_t i) { row[i] = row[i] < least ? least : row[i]; });
      continue;
    }
    float largest = row[0];
    for (int64_t i = 1; i < rows.length; ++i) largest = std::max(largest, row[i * rows.stride]);
    const float least = kLeast * largest;
    for (int64_t i = 0; i < rows.length; ++i) {
      if (row[i * rows.stride] < least) row[i * rows.stride] = least;
    }
  }
}

// y = softmax of the rows x, possibly in place.
template <typename T>
void SoftmaxRows(const AxisRows& rows, const T* x, DnnlOfShape<AxisRows>* of_shape, T* y) {
  const int64_t size = rows.count() * rows.length;
  if (size == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    (*of_shape)(rows, MakeSoftmax).Run({x}, {y});
    BoundBelow(rows, size, y);
  } else {
    for (int64_t r = 0; r < rows.count(); ++r) {
      SoftmaxRow(x + rows.Start(r), rows.length, rows.stride, y + rows.Start(r));
    }
  }
}

// Made before the first step.
template <typename T>
DnnlOfShape<AxisRows> PrimitiveFor(const Tensor& x, int64_t axis,
                                   DnnlPrimitive (*make)(const AxisRows&)) {
  DnnlOfShape<AxisRows> of_shape;
  const absl::StatusOr<AxisRows> rows = AxisRows::Along(axis, x.dims());
  if (std::is_same_v<T, float> && rows.ok() && x.size() > 0) of_shape(*rows, make);
  return of_shape;
}

// Out = softmax of X.
absl::StatusOr<Kernel> Softmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    return [=, of_shape = PrimitiveFor<T>(x(types), axis, MakeSoftmax)](
               const KernelContext& ctx) mutable -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const AxisRows rows, AxisRows::Along(axis, x(ctx).dims()));
      SoftmaxRows(rows, x.data<T>(ctx), &of_shape, out.data<T>(ctx));
      return absl::OkStatus();
    };
  });
}

// X@GRAD = Out (Out@GRAD - sum over the row of Out Out@GRAD).
absl::StatusOr<Kernel> SoftmaxGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(dx, dout).Make(Floats(out), [=](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    return [=, of_shape = PrimitiveFor<T>(out(types), axis, MakeSoftmaxGrad)](
               const KernelContext& ctx) mutable -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const AxisRows rows, AxisRows::Along(axis, out(ctx).dims()));
      const T *p = out.data<T>(ctx), *dp = dout.data<T>(ctx);
      T* to = dx.data<T>(ctx);
      if (out(ctx).size() == 0) return absl::OkStatus();
      if constexpr (std::is_same_v<T, float>) {
        of_shape(rows, MakeSoftmaxGrad).Run({p, dp}, {to});
        return absl::OkStatus();
      }
      for (int64_t r = 0; r < rows.count(); ++r) {
        const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
        double dot = 0;
        for (int64_t i = start; i < end; i += rows.stride) dot += double{p[i]} * dp[i];
        for (int64_t i = start; i < end; i += rows.stride) {
          to[i] = p[i] * (dp[i] - static_cast<T>(dot));
        }
      }
      return absl::OkStatus();
    };
  });
}

// --- log_softmax ---------------------------------------------------------------------------------

bool RunsAsVectors(const AxisRows& rows) { return rows.stride == 1 && rows.length >= kFewClasses; }

// y = x - log Σ exp x of one row, possibly in place.
template <typename T>
void LogSoftmaxRow(const T* x, const AxisRows& rows, T* y) {
  const int64_t n = rows.length, stride = rows.stride;
  if (RunsAsVectors(rows)) {
    const T largest = LargestOf(x, n);
    const auto term = [=](int64_t i) { return double{std::exp(x[i] - largest)}; };
    const T log_sum = static_cast<T>(std::log(SumOf<T>(n, term)));
    return ForEach<T>(n, [=](int64_t i) { y[i] = x[i] - largest - log_sum; });
  }
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t k = 0; k < n; ++k) largest = std::max(largest, x[k * stride]);
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += std::exp(x[k * stride] - largest);
  const T log_sum = static_cast<T>(std::log(sum));
  for (int64_t k = 0; k < n; ++k) y[k * stride] = x[k * stride] - largest - log_sum;
}

// Out = X - log Σ exp X.
absl::StatusOr<Kernel> LogSoftmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    for (int64_t r = 0; r < rows.count(); ++r) {
      LogSoftmaxRow(x.data<T>(ctx) + rows.Start(r), rows, out.data<T>(ctx) + rows.Start(r));
    }
  });
}

// X@GRAD = Out@GRAD - exp(Out) Σ Out@GRAD.
absl::StatusOr<Kernel> LogSoftmaxGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(dx, dout).InPlace(dx, out).Make(
      Floats(out), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        const AxisRows rows = RowsAlong(out(ctx).dims(), axis);
        for (int64_t r = 0; r < rows.count(); ++r) {
          const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
          if (RunsAsVectors(rows)) {
            const T *y = ys + start, *dy = dys + start;
            T* const dx_row = to + start;
            const auto sum =
                static_cast<T>(SumOf<T>(rows.length, [=](int64_t i) { return double{dy[i]}; }));
            ForEach<T>(rows.length, [=](int64_t i) { dx_row[i] = dy[i] - std::exp(y[i]) * sum; });
            continue;
          }
          double sum = 0;
          for (int64_t i = start; i < end; i += rows.stride) sum += dys[i];
          for (int64_t i = start; i < end; i += rows.stride) {
            to[i] = dys[i] - std::exp(ys[i]) * static_cast<T>(sum);
          }
        }
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
T NegativeLog(T p) {
  return std::min(-std::log(p), T(1e20));
}

// Loss of every row: the sum over classes of -label log p.
template <typename T>
void SoftLoss(const AxisRows& rows, const T* p, const T* label, T* loss) {
  const bool as_vectors = RunsAsVectors(rows);
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t start = rows.Start(r), stride = rows.stride;
    const auto term = [=](int64_t at) { return double{label[at]} * NegativeLog(p[at]); };
    double sum = 0;
    if (as_vectors) {
      sum = SumOf<T>(rows.length, [=](int64_t i) { return term(start + i); });
    } else {
      for (int64_t i = 0; i < rows.length; ++i) sum += term(start + i * stride);
    }
    loss[r] = static_cast<T>(sum);
  }
}

// Softmax of Logits, which may already be probabilities, and the loss of every row.
absl::StatusOr<Kernel> SoftmaxWithCrossEntropy(OpKernel op) {
  const In logits = op.in("Logits"), label = op.in("Label");
  const Out softmax = op.out("Softmax"), loss = op.out("Loss");
  const Options options(op.attrs());
  return op.InPlace(softmax, logits)
      .Make(Floats(logits), [=](const KernelContext& types, auto zero) {
        using T = decltype(zero);
        DnnlOfShape<AxisRows> made;
        if (options.use_softmax) made = PrimitiveFor<T>(logits(types), options.axis, MakeSoftmax);
        return [=, of_shape = made](const KernelContext& ctx) mutable -> absl::Status {
          WEFT_ASSIGN_OR_RETURN(const AxisRows rows,
                                AxisRows::Along(options.axis, logits(ctx).dims()));
          const T* x = logits.data<T>(ctx);
          T* p = softmax.data<T>(ctx);
          if (options.use_softmax) {
            SoftmaxRows(rows, x, &of_shape, p);
          } else if (p != x) {
            std::copy_n(x, logits(ctx).size(), p);
          }
          if (!options.soft_label) {
            T* to = loss.data<T>(ctx);
            return ForEachLabel(
                label(ctx), rows.length, options.ignore_index, [=](int64_t r, int64_t c) {
                  to[r] = c < 0 ? T(0) : NegativeLog(p[rows.Start(r) + c * rows.stride]);
                });
          }
          SoftLoss(rows, p, label.data<T>(ctx), loss.data<T>(ctx));
          return absl::OkStatus();
        };
      });
}

// The derivative of a row's loss by one logit, given the label's weight for its class; if the
// logits are probabilities, the derivative of -weight log p.
template <typename T>
T LogitGradient(bool use_softmax, T p, T weight) {
  if (use_softmax) return p - weight;
  return weight == 0 ? T(0) : -weight / p;
}

// Logits@GRAD = that derivative times Loss@GRAD of the row; 0 in an ignored row.
absl::StatusOr<Kernel> SoftmaxWithCrossEntropyGrad(OpKernel op) {
  const In softmax = op.in("Softmax"), label = op.in("Label"), dloss = op.in("Loss@GRAD");
  const Out dlogits = op.out("Logits@GRAD");
  Options options(op.attrs());
  // Paddle 1's CPU kernel gives classes that are ignored the gradient of the others.
  const bool ignores = !op.spec().paddle_cpu_quirks || options.ignore_index < 0 ||
                       op.attrs().Does("gives ignored labels no gradient");
  if (!ignores) options.ignore_index = std::numeric_limits<int64_t>::min();
  return op.InPlace(dlogits, softmax)
      .Make(Floats(softmax), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows,
                              AxisRows::Along(options.axis, softmax(ctx).dims()));
        const T *p = softmax.data<T>(ctx), *dl = dloss.data<T>(ctx);
        T* dx = dlogits.data<T>(ctx);
        // weight(position, class) is the label's weight for that class.
        const auto write_row = [&](int64_t r, auto weight) {
          const int64_t start = rows.Start(r), stride = rows.stride;
          const T dl_row = dl[r];
          const auto write = [&](auto step, auto use_softmax) {
            ForEach<T>(rows.length, [=](int64_t i) {
              const int64_t at = start + i * step;
              dx[at] = LogitGradient(use_softmax, p[at], weight(at, i)) * dl_row;
            });
          };
          if (stride == 1 && options.use_softmax) {
            write(std::integral_constant<int64_t, 1>(), std::true_type());
          } else {
            write(stride, options.use_softmax);
          }
        };
        if (options.soft_label) {
          const T* weights = label.data<T>(ctx);
          for (int64_t r = 0; r < rows.count(); ++r) {
            write_row(r, [=](int64_t at, int64_t) { return weights[at]; });
          }
          return absl::OkStatus();
        }
        return ForEachLabel(label(ctx), rows.length, options.ignore_index,
                            [&](int64_t r, int64_t c) {
                              if (c < 0) {
                                for (int64_t i = 0; i < rows.length; ++i) {
                                  dx[rows.Start(r) + i * rows.stride] = 0;
                                }
                              } else {
                                write_row(r, [=](int64_t, int64_t i) { return T(i == c ? 1 : 0); });
                              }
                            });
      });
}

}  // namespace

void AddSoftmaxKernels(KernelTable* table) {
  table->Add("softmax", Softmax, SoftmaxGrad);
  table->Add("log_softmax", LogSoftmax, LogSoftmaxGrad);
  table->Add("softmax_with_cross_entropy", SoftmaxWithCrossEntropy, SoftmaxWithCrossEntropyGrad);
}

}  // namespace weft
