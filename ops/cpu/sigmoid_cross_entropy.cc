// Cross entropy of independent binary predictions, given as logits.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Which labels count, and the divisor of losses and gradients.
class Labels {
 public:
  explicit Labels(const OpAttrs& attrs)
      : ignore_index_(attrs.Int("ignore_index")), normalize_(attrs.Bool("normalize")) {}

  template <typename T>
  bool Count(T label) const {
    return label != static_cast<T>(ignore_index_);
  }

  template <typename T>
  T Divisor(const T* labels, int64_t size) const {
    if (!normalize_) return 1;
    const int64_t count =
        std::count_if(labels, labels + size, [this](T label) { return Count(label); });
    return static_cast<T>(std::max<int64_t>(count, 1));
  }

 private:
  int64_t ignore_index_;
  bool normalize_;
};

// log(1 + exp(-x))
template <typename T>
T SoftplusOfNegative(T x) {
  return std::max(-x, T(0)) + std::log1p(std::exp(-std::fabs(x)));
}

// Out = (1 - Label) X + w log(1 + exp(-X)), which for w = 1 is -Label log p - (1 - Label) log(1 -
// p) with p = sigmoid(X). With weights W from pos_weight, w = 1 + (W - 1) Label weights the first
// term. Out is 0 if Label is ignore_index. If the op normalizes, Out is divided by the number of
// labels that count. Paddle's kernel leaves max(-X, 0) out of the weighted term.
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), pos_weight = op.in("pos_weight");
  const Out out = op.out("Out");
  const Labels which(op.attrs());
  const bool as_paddle = op.spec().paddle_cpu_quirks;
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t n = x(ctx).size();
    const T *xs = x.data<T>(ctx), *labels = label.data<T>(ctx);
    const T* weights = pos_weight.data_or_null<T>(ctx);
    const T divisor = which.Divisor(labels, n);
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < n; ++i) {
      T loss = std::max(xs[i], T(0)) - xs[i] * labels[i] + std::log1p(std::exp(-std::fabs(xs[i])));
      if (weights != nullptr) {
        const T weighted =
            as_paddle ? std::log1p(std::exp(-std::fabs(xs[i]))) : SoftplusOfNegative(xs[i]);
        loss += (weights[i] - 1) * weighted;
      }
      to[i] = which.Count(labels[i]) ? loss / divisor : T(0);
    }
  });
}

// X@GRAD = (1 - Label - w (1 - sigmoid(X))) Out@GRAD, or 0, divided as the losses are. Paddle's
// kernel has w sigmoid(X) - Label.
absl::StatusOr<Kernel> Backward(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), pos_weight = op.in("pos_weight");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const Labels which(op.attrs());
  const bool as_paddle = op.spec().paddle_cpu_quirks;
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t n = x(ctx).size();
    const T *xs = x.data<T>(ctx), *labels = label.data<T>(ctx), *douts = dout.data<T>(ctx);
    const T* weights = pos_weight.data_or_null<T>(ctx);
    const T divisor = which.Divisor(labels, n);
    T* to = dx.data<T>(ctx);
    for (int64_t i = 0; i < n; ++i) {
      const T sigmoid = 1 / (1 + std::exp(-xs[i]));
      T slope = sigmoid - labels[i];
      if (weights != nullptr) slope += (weights[i] - 1) * (as_paddle ? sigmoid : sigmoid - 1);
      to[i] = which.Count(labels[i]) ? slope * douts[i] / divisor : T(0);
    }
  });
}

}  // namespace

void AddSigmoidCrossEntropyKernels(KernelTable* table) {
  table->Add("sigmoid_cross_entropy_with_logits", Forward, Backward);
}

}  // namespace weft
