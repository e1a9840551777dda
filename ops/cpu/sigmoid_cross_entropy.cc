// Cross entropy of independent yes-or-no predictions, given as logits.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// What both directions read: X, Label, and which labels count.
struct Options {
  int x, label;
  int64_t ignore_index;
  bool normalize;

  static absl::StatusOr<Options> Make(const KernelSpec& spec) {
    WEFT_RETURN_IF_ERROR(NoInputs(spec, {"pos_weight"}));
    Options options;
    WEFT_ASSIGN_OR_RETURN(options.x, RequiredInput(spec, "X"));
    WEFT_ASSIGN_OR_RETURN(options.label, RequiredInput(spec, "Label"));
    options.ignore_index = spec.attrs.Int("ignore_index");
    options.normalize = spec.attrs.Bool("normalize");
    return options;
  }

  template <typename T>
  bool Counts(T label) const {
    return label != static_cast<T>(ignore_index);
  }

  // What losses and gradients are divided by.
  template <typename T>
  T Divisor(const Tensor& labels) const {
    if (!normalize) return 1;
    const T* begin = labels.data<T>();
    const int64_t count =
        std::count_if(begin, begin + labels.size(), [this](T label) { return Counts(label); });
    return static_cast<T>(std::max<int64_t>(count, 1));
  }
};

// Out = max(X, 0) - X Label + log(1 + exp(-|X|)), which is -Label log p - (1 - Label) log(1 - p)
// for p = sigmoid(X); 0 where Label is ignore_index. Divided by the number of labels that count
// where the op normalizes. Possibly in place of X.
absl::StatusOr<Kernel> Forward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Options options, Options::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(options.x);
    const Tensor& label = *ctx.in(options.label);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckDims("Label", label, x.dims()));
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T divisor = options.Divisor<T>(label);
      out->Resize(x.dtype(), x.dims());
      const T *xs = x.data<T>(), *labels = label.data<T>();
      T* to = out->data<T>();
      for (int64_t i = 0; i < x.size(); ++i) {
        const T loss =
            std::max(xs[i], T(0)) - xs[i] * labels[i] + std::log1p(std::exp(-std::fabs(xs[i])));
        to[i] = options.Counts(labels[i]) ? loss / divisor : T(0);
      }
      return absl::OkStatus();
    });
  });
}

// X@GRAD = (sigmoid(X) - Label) Out@GRAD, or 0, divided as the losses are. Possibly in place of
// Out@GRAD or X.
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Options options, Options::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(options.x);
    const Tensor& label = *ctx.in(options.label);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dx = ctx.out(dx_index);
    if (dx == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckDims("Label", label, x.dims()));
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", dout, x.dims()));
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T divisor = options.Divisor<T>(label);
      dx->Resize(x.dtype(), x.dims());
      const T *xs = x.data<T>(), *labels = label.data<T>(), *douts = dout.data<T>();
      T* to = dx->data<T>();
      for (int64_t i = 0; i < x.size(); ++i) {
        const T sigmoid = 1 / (1 + std::exp(-xs[i]));
        to[i] = options.Counts(labels[i]) ? (sigmoid - labels[i]) * douts[i] / divisor : T(0);
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddSigmoidCrossEntropyKernels(KernelTable* table) {
  table->Add("sigmoid_cross_entropy_with_logits", Framed(Forward));
  table->Add("sigmoid_cross_entropy_with_logits_grad", Framed(Backward));
}

}  // namespace weft
