// Softmax over one dimension (the classes) and the cross entropy of its result against labels.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/families.h"
#include "ops/cpu/softmax_row.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

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

// The class of a row; none if the label is ignore_index.
template <typename Label>
absl::StatusOr<absl::optional<int64_t>> ClassOf(const Label* labels, int64_t row, int64_t classes,
                                                int64_t ignore_index) {
  const int64_t label = labels[row];
  if (label == ignore_index) return absl::optional<int64_t>();
  if (label < 0 || label >= classes) {
    return absl::InvalidArgumentError(absl::StrCat("input Label: ", label, " at position ", row,
                                                   " is not in [0, ", classes,
                                                   ") and not ignore_index ", ignore_index));
  }
  return absl::optional<int64_t>(label);
}

// Calls `run` with the type of hard labels.
template <typename Run>
absl::Status ForLabelType(const Tensor& label, Run run) {
  return ForElementType<int64_t, int32_t>("input Label", label, run);
}

// The loss of every row, from its probabilities and its label.
template <typename T>
absl::Status HardLoss(const AxisRows& rows, const T* p, const Tensor& label, int64_t ignore_index,
                      T* loss) {
  return ForLabelType(label, [&](auto tag) -> absl::Status {
    const auto* labels = label.data<typename decltype(tag)::type>();
    for (int64_t r = 0; r < rows.count(); ++r) {
      WEFT_ASSIGN_OR_RETURN(const absl::optional<int64_t> c,
                            ClassOf(labels, r, rows.length, ignore_index));
      loss[r] = c ? NegativeLog(p[rows.Start(r) + *c * rows.stride]) : T(0);
    }
    return absl::OkStatus();
  });
}

// Loss of every row: the sum over classes of -label log p.
template <typename T>
void SoftLoss(const AxisRows& rows, const T* p, const T* label, T* loss) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    double sum = 0;
    for (int64_t i = 0; i < rows.length; ++i) {
      const int64_t at = rows.Start(r) + i * rows.stride;
      sum += label[at] * NegativeLog(p[at]);
    }
    loss[r] = static_cast<T>(sum);
  }
}

// Softmax of Logits, which may already be probabilities, and the loss of every row.
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In logits = op.in("Logits"), label = op.in("Label");
  const Out softmax = op.out("Softmax"), loss = op.out("Loss");
  const Options options(op.attrs());
  return op.InPlace(softmax, logits)
      .Make(Floats(logits), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows,
                              AxisRows::Along(options.axis, logits(ctx).dims()));
        const T* x = logits.data<T>(ctx);
        T* p = softmax.data<T>(ctx);
        if (options.use_softmax) {
          for (int64_t r = 0; r < rows.count(); ++r) {
            SoftmaxRow(x + rows.Start(r), rows.length, rows.stride, p + rows.Start(r));
          }
        } else if (p != x) {
          std::copy_n(x, logits(ctx).size(), p);
        }
        if (!options.soft_label) {
          return HardLoss(rows, p, label(ctx), options.ignore_index, loss.data<T>(ctx));
        }
        SoftLoss(rows, p, label.data<T>(ctx), loss.data<T>(ctx));
        return absl::OkStatus();
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
absl::StatusOr<Kernel> Backward(OpKernel op) {
  const In softmax = op.in("Softmax"), label = op.in("Label"), dloss = op.in("Loss@GRAD");
  const Out dlogits = op.out("Logits@GRAD");
  const Options options(op.attrs());
  return op.InPlace(dlogits, softmax)
      .Make(Floats(softmax), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const AxisRows rows,
                              AxisRows::Along(options.axis, softmax(ctx).dims()));
        const T *p = softmax.data<T>(ctx), *dl = dloss.data<T>(ctx);
        T* dx = dlogits.data<T>(ctx);
        // weight(position, class) is the label's weight for that class.
        const auto write_row = [&](int64_t r, auto weight) {
          for (int64_t i = 0; i < rows.length; ++i) {
            const int64_t at = rows.Start(r) + i * rows.stride;
            dx[at] = LogitGradient(options.use_softmax, p[at], weight(at, i)) * dl[r];
          }
        };
        if (options.soft_label) {
          const T* weights = label.data<T>(ctx);
          for (int64_t r = 0; r < rows.count(); ++r) {
            write_row(r, [&](int64_t at, int64_t) { return weights[at]; });
          }
          return absl::OkStatus();
        }
        return ForLabelType(label(ctx), [&](auto label_tag) -> absl::Status {
          const auto* labels = label.data<typename decltype(label_tag)::type>(ctx);
          for (int64_t r = 0; r < rows.count(); ++r) {
            WEFT_ASSIGN_OR_RETURN(const absl::optional<int64_t> c,
                                  ClassOf(labels, r, rows.length, options.ignore_index));
            if (c) {
              write_row(r, [&](int64_t, int64_t i) { return T(i == *c ? 1 : 0); });
            } else {
              for (int64_t i = 0; i < rows.length; ++i) dx[rows.Start(r) + i * rows.stride] = 0;
            }
          }
          return absl::OkStatus();
        });
      });
}

}  // namespace

void AddSoftmaxWithCrossEntropyKernels(KernelTable* table) {
  table->Add("softmax_with_cross_entropy", Forward, Backward);
}

}  // namespace weft
