// Softmax and its logarithm over one dimension of a tensor, the classes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/cpu/softmax_row.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

using dnnl::memory;

memory::desc DescOf(const AxisRows& rows) {
  return memory::desc({rows.outer, rows.length, rows.stride}, memory::data_type::f32,
                      memory::format_tag::abc);
}

dnnl::softmax_forward::primitive_desc DescribeForward(const AxisRows& rows) {
  return {{dnnl::prop_kind::forward_training, DescOf(rows), /*axis=*/1},
          DnnlAttributes(),
          DnnlCpuEngine()};
}

DnnlPrimitive MakeForward(const AxisRows& rows) {
  const memory::desc desc = DescOf(rows);
  const auto forward = DescribeForward(rows);
  return DnnlPrimitive(dnnl::softmax_forward(forward), forward.scratchpad_desc(),
                       {{DNNL_ARG_SRC, desc, desc}}, {{DNNL_ARG_DST, desc, desc}});
}

DnnlPrimitive MakeBackward(const AxisRows& rows) {
  const memory::desc desc = DescOf(rows);
  const dnnl::softmax_backward::primitive_desc backward({desc, desc, /*axis=*/1}, DnnlAttributes(),
                                                        DnnlCpuEngine(), DescribeForward(rows));
  return DnnlPrimitive(dnnl::softmax_backward(backward), backward.scratchpad_desc(),
                       {{DNNL_ARG_DST, desc, desc}, {DNNL_ARG_DIFF_DST, desc, desc}},
                       {{DNNL_ARG_DIFF_SRC, desc, desc}});
}

// The lower bound of SoftmaxRow, applied to oneDNN's result: e^-64 of the largest probability of a
// row.
void BoundBelow(const AxisRows& rows, int64_t size, float* p) {
  constexpr float kLeast = 1.6038108905486379e-28F;
  bool is_any_below = false;  // mostly not; without a branch, so that the loop is vectorized
  for (int64_t i = 0; i < size; ++i) is_any_below |= p[i] < kLeast;
  if (!is_any_below) return;
  for (int64_t r = 0; r < rows.count(); ++r) {
    float* const row = p + rows.Start(r);
    float largest = row[0];
    for (int64_t i = 1; i < rows.length; ++i) largest = std::max(largest, row[i * rows.stride]);
    const float least = kLeast * largest;
    for (int64_t i = 0; i < rows.length; ++i) {
      if (row[i * rows.stride] < least) row[i * rows.stride] = least;
    }
  }
}

// Out = softmax of X.
absl::StatusOr<Kernel> Softmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace().Make(
      Floats(x),
      [=, of_shape = DnnlOfShape<AxisRows>()](const KernelContext& ctx,
                                              auto zero) mutable -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows, AxisRows::Along(axis, x(ctx).dims()));
        const T* from = x.data<T>(ctx);
        T* to = out.data<T>(ctx);
        if (x(ctx).size() == 0) return absl::OkStatus();
        if constexpr (std::is_same_v<T, float>) {
          of_shape(rows, MakeForward).Run({from}, {to});
          BoundBelow(rows, x(ctx).size(), to);
        } else {
          for (int64_t r = 0; r < rows.count(); ++r) {
            SoftmaxRow(from + rows.Start(r), rows.length, rows.stride, to + rows.Start(r));
          }
        }
        return absl::OkStatus();
      });
}

// X@GRAD = Out (Out@GRAD - sum over the row of Out Out@GRAD).
absl::StatusOr<Kernel> SoftmaxGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(dx, dout).Make(
      Floats(out),
      [=, of_shape = DnnlOfShape<AxisRows>()](const KernelContext& ctx,
                                              auto zero) mutable -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows, AxisRows::Along(axis, out(ctx).dims()));
        const T *p = out.data<T>(ctx), *dp = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        if (out(ctx).size() == 0) return absl::OkStatus();
        if constexpr (std::is_same_v<T, float>) {
          of_shape(rows, MakeBackward).Run({p, dp}, {to});
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
      });
}

// --- log_softmax ---------------------------------------------------------------------------------

// Out = X - log Σ exp X.
absl::StatusOr<Kernel> LogSoftmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const T* from = x.data<T>(ctx) + rows.Start(r);
      T* to = out.data<T>(ctx) + rows.Start(r);
      T largest = -std::numeric_limits<T>::infinity();
      for (int64_t k = 0; k < rows.length; ++k) largest = std::max(largest, from[k * rows.stride]);
      double sum = 0;
      for (int64_t k = 0; k < rows.length; ++k) sum += std::exp(from[k * rows.stride] - largest);
      const T log_sum = static_cast<T>(std::log(sum));
      for (int64_t k = 0; k < rows.length; ++k) {
        to[k * rows.stride] = from[k * rows.stride] - largest - log_sum;
      }
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
          double sum = 0;
          const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
          for (int64_t i = start; i < end; i += rows.stride) sum += dys[i];
          for (int64_t i = start; i < end; i += rows.stride) {
            to[i] = dys[i] - std::exp(ys[i]) * static_cast<T>(sum);
          }
        }
      });
}

}  // namespace

void AddSoftmaxKernels(KernelTable* table) {
  table->Add("softmax", Softmax, SoftmaxGrad);
  table->Add("log_softmax", LogSoftmax, LogSoftmaxGrad);
}

}  // namespace weft
