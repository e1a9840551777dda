// Losses with dedicated ops, by the formulas of ops/formulas/loss.h.
#include <cstdint>
#include <memory>

#include "base/status_macros.h"
#include "ops/formulas/loss.h"
#include "ops/gpu/element_check.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- One number per element ----------------------------------------------------------------------

template <typename F>
struct LossOf {
  F f;
  WEFT_DEVICE double operator()(double a, double b) const { return f.Out(a, b); }
};
template <typename F>
struct LossGradOf {
  F f;
  WEFT_DEVICE double operator()(double a, double b, double d) const { return d * f.Da(a, b); }
};

struct PairLoss {
  const char *a, *b, *out;
};

// Adds `type`, Out = f.Out(a, b), and `type`_grad, a@GRAD = Out@GRAD f.Da(a, b); all in double
// precision. make(attrs) returns f.
template <typename Make>
void Add(KernelTable* table, const char* type, const PairLoss& loss, Make make) {
  table->Add(
      type,
      [=](OpKernel op) {
        const In a = op.in(loss.a), b = op.in(loss.b);
        const Out out = op.out(loss.out);
        const auto f = make(op.attrs());
        return op.InPlace(out, a).InPlace(out, b).Make(
            Floats(a), [=](const KernelContext& ctx, auto zero) {
              using T = decltype(zero);
              using F = LossOf<std::decay_t<decltype(f)>>;
              return ForEach(ctx, a(ctx).size(),
                             MapTwo<T, F>{F{f}, a.data<T>(ctx), b.data<T>(ctx), out.data<T>(ctx)});
            });
      },
      [=](OpKernel op) {
        const In a = op.in(loss.a), b = op.in(loss.b);
        const In dout = op.in(absl::StrCat(loss.out, "@GRAD"));
        const Out da = op.out(absl::StrCat(loss.a, "@GRAD"));
        const auto f = make(op.attrs());
        return op.Make(Floats(a), [=](const KernelContext& ctx, auto zero) {
          using T = decltype(zero);
          using F = LossGradOf<std::decay_t<decltype(f)>>;
          return ForEach(ctx, a(ctx).size(),
                         MapThree<T, F>{F{f}, a.data<T>(ctx), b.data<T>(ctx), dout.data<T>(ctx),
                                        da.data<T>(ctx)});
        });
      });
}

// --- huber_loss ----------------------------------------------------------------------------------

template <typename T>
struct HuberLossOf {
  formulas::HuberLoss f;
  const T *x, *y;
  T *residual, *out;  // may be null
  WEFT_DEVICE void operator()(int64_t i) const {
    const T r = y[i] - x[i];
    if (residual != nullptr) residual[i] = r;
    if (out != nullptr) out[i] = f.Out(r);
  }
};

// Residual = Y - X; Out is the loss of that.
absl::StatusOr<Kernel> HuberLoss(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out residual = op.out("Residual"), out = op.out("Out");
  const formulas::HuberLoss f{op.attrs().Float("delta")};
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, x(ctx).size(),
                   HuberLossOf<T>{f, x.data<T>(ctx), y.data<T>(ctx), residual.data_or_null<T>(ctx),
                                  out.data_or_null<T>(ctx)});
  });
}

template <typename T>
struct HuberLossGradOf {
  formulas::HuberLoss f;
  const T *residual, *dout;
  T *dx, *dy;  // may be null
  WEFT_DEVICE void operator()(int64_t i) const {
    const T slope = f.Slope(residual[i]) * dout[i];
    if (dx != nullptr) dx[i] = -slope;
    if (dy != nullptr) dy[i] = slope;
  }
};

absl::StatusOr<Kernel> HuberLossGrad(OpKernel op) {
  const In residual = op.in("Residual"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const formulas::HuberLoss f{op.attrs().Float("delta")};
  return op.Make(Floats(residual), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, residual(ctx).size(),
                   HuberLossGradOf<T>{f, residual.data<T>(ctx), dout.data<T>(ctx),
                                      dx.data_or_null<T>(ctx), dy.data_or_null<T>(ctx)});
  });
}

// --- sigmoid_cross_entropy_with_logits -----------------------------------------------------------

template <typename T>
struct CountLabel {
  T ignored;
  const T* labels;
  WEFT_DEVICE double operator()(int64_t i, int64_t) const { return labels[i] != ignored; }
};

// Loss or, with `dout`, its gradient.
template <typename T>
struct SigmoidLossOf {
  T ignored;
  const double* count;                   // of labels that count; may be null
  const T *x, *labels, *weights, *dout;  // weights and dout may be null
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    using F = formulas::SigmoidCrossEntropy<T>;
    const T w = weights == nullptr ? T(1) : weights[i], label = labels[i];
    const T divisor = count == nullptr || *count < 1 ? T(1) : static_cast<T>(*count);
    const T value = dout == nullptr ? F::Out(x[i], label, w) : F::Slope(x[i], label, w) * dout[i];
    out[i] = label == ignored ? T(0) : value / divisor;
  }
};

absl::StatusOr<Kernel> SigmoidCrossEntropy(OpKernel op, const char* out_slot, bool is_gradient) {
  const In x = op.in("X"), label = op.in("Label"), pos_weight = op.in("pos_weight");
  const In dout = is_gradient ? op.in("Out@GRAD") : In();
  const Out out = op.out(out_slot);
  const int64_t ignored = op.attrs().Int("ignore_index");
  const bool normalize = op.attrs().Bool("normalize");
  return op.InPlace(out, x).Make(
      Floats(x),
      [=, count = std::make_shared<Tensor>(), scratch = std::make_shared<Tensor>()](
          const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const T* const labels = label.data<T>(ctx);
        const int64_t size = x(ctx).size();
        const double* divisor = nullptr;
        if (normalize) {
          ScratchLike(x(ctx), count.get())->Resize(DType::kFloat64, {1});
          divisor = count->data<double>();
          WEFT_RETURN_IF_ERROR(ReduceTo(
              ctx, {size}, {1}, 0.0, CountLabel<T>{static_cast<T>(ignored), labels}, gpu::Plus(),
              ScratchLike(x(ctx), scratch.get()), StoreElement<double>{count->data<double>()}));
        }
        return ForEach(ctx, size,
                       SigmoidLossOf<T>{static_cast<T>(ignored), divisor, x.data<T>(ctx), labels,
                                        pos_weight.data_or_null<T>(ctx), dout.data_or_null<T>(ctx),
                                        out.data<T>(ctx)});
      });
}

// --- Classes -------------------------------------------------------------------------------------

template <typename T, typename Label>
struct HardCrossEntropy {
  int64_t classes, ignored;
  const T* x;
  const Label* labels;
  gpu::ElementCheck check;
  T *y, *match;  // match may be null
  WEFT_DEVICE void operator()(int64_t row) const {
    const Label label = labels[row];
    const bool counts = label != ignored;
    T p = T(0);
    if (counts) {
      const bool is_known = check.IsInRange(label, 0, classes, row);
      p = is_known ? x[row * classes + label] : gpu::NoValue<T>();
    }
    y[row] = counts ? static_cast<T>(formulas::MinusLog(p)) : T(0);
    if (match != nullptr) match[row] = p;
  }
};

template <typename T>
struct SoftCrossEntropy {
  int64_t classes;
  const T *x, *labels;
  T* y;
  WEFT_DEVICE void operator()(int64_t row, const gpu::Block& block) const {
    const double sum = block.Sum<double>(classes, [&](int64_t i) -> double {
      const int64_t at = row * classes + i;
      return labels[at] == 0 ? 0 : labels[at] * formulas::MinusLog(x[at]);
    });
    block.Once([&] { y[row] = static_cast<T>(sum); });
  }
};

// Y = -log X[label], for rows of probabilities; with soft_label -Σ Label log X. MatchX = X[label].
absl::StatusOr<Kernel> CrossEntropy(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label");
  const Out y = op.out("Y");
  const Out match = op.spec().schema->FindOutput("MatchX") != nullptr ? op.out("MatchX") : Out();
  const bool is_soft = op.attrs().Has("soft_label") && op.attrs().Bool("soft_label");
  const int64_t ignored = op.attrs().Int("ignore_index");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t classes = x(ctx).dims().back(), rows = y(ctx).size();
    if (is_soft) {
      return ForEachRow(
          ctx, rows, classes,
          SoftCrossEntropy<T>{classes, x.data<T>(ctx), label.data<T>(ctx), y.data<T>(ctx)});
    }
    return ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
      using Label = typename decltype(tag)::type;
      return ForEach(
          ctx, label(ctx).size(),
          HardCrossEntropy<T, Label>{classes, ignored, x.data<T>(ctx), label.data<Label>(ctx),
                                     gpu::ElementCheck(ctx, "Label"), y.data<T>(ctx),
                                     match.data_or_null<T>(ctx)});
    });
  });
}

template <typename T, typename Label>
struct HardCrossEntropyGrad {
  int64_t classes, ignored;
  bool has_match;
  const T* x;
  const Label* labels;
  gpu::ElementCheck check;
  const T* dy;
  T* dx;
  WEFT_DEVICE void operator()(int64_t at) const {
    const int64_t row = at / classes;
    const Label label = labels[row];
    if (label != ignored && !check.IsInRange(label, 0, classes, row)) {
      dx[at] = gpu::NoValue<T>();
      return;
    }
    const bool is_label = label != ignored && at % classes == label;
    dx[at] = is_label ? -dy[row] / x[has_match ? row : at] : T(0);
  }
};

template <typename T>
struct SoftCrossEntropyGrad {
  int64_t classes;
  const T *x, *labels, *dy;
  T* dx;
  WEFT_DEVICE void operator()(int64_t at) const { dx[at] = -dy[at / classes] * labels[at] / x[at]; }
};

// X@GRAD = -Y@GRAD / X at the label, -Y@GRAD Label / X for soft labels.
absl::StatusOr<Kernel> CrossEntropyGrad(OpKernel op) {
  const In label = op.in("Label"), dy = op.in("Y@GRAD");
  const bool has_match = op.spec().schema->FindInput("MatchX") != nullptr;
  const In x = op.in(has_match ? "MatchX" : "X");  // one element per row, or the whole row
  op.Ignore({"XShape"});
  const Out dx = op.out("X@GRAD");
  const bool is_soft = op.attrs().Has("soft_label") && op.attrs().Bool("soft_label");
  const int64_t ignored = op.attrs().Int("ignore_index");
  return op.Make(Floats(dy), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t classes = dx(ctx).dims().back(), size = dx(ctx).size();
    if (is_soft) {
      return ForEach(ctx, size,
                     SoftCrossEntropyGrad<T>{classes, x.data<T>(ctx), label.data<T>(ctx),
                                             dy.data<T>(ctx), dx.data<T>(ctx)});
    }
    return ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
      using Label = typename decltype(tag)::type;
      return ForEach(ctx, size,
                     HardCrossEntropyGrad<T, Label>{
                         classes, ignored, has_match, x.data<T>(ctx), label.data<Label>(ctx),
                         gpu::ElementCheck(ctx, "Label"), dy.data<T>(ctx), dx.data<T>(ctx)});
    });
  });
}

// --- label_smooth --------------------------------------------------------------------------------

template <typename T>
struct Smooth {
  int64_t classes;
  T epsilon;
  const T *x, *prior;  // prior may be null
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    const T share = prior != nullptr ? prior[i % classes] : T(1) / classes;
    out[i] = (1 - epsilon) * x[i] + epsilon * share;
  }
};

// Out = (1 - epsilon) X + epsilon PriorDist, or epsilon / classes.
absl::StatusOr<Kernel> LabelSmooth(OpKernel op) {
  const In x = op.in("X"), prior = op.in("PriorDist");
  const Out out = op.out("Out");
  const double epsilon = op.attrs().Float("epsilon");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, x(ctx).size(),
                   Smooth<T>{x(ctx).dims().back(), static_cast<T>(epsilon), x.data<T>(ctx),
                             prior.data_or_null<T>(ctx), out.data<T>(ctx)});
  });
}

struct TimesKept {
  double epsilon;
  template <typename T>
  WEFT_DEVICE T operator()(T dy) const {
    return static_cast<T>(1 - epsilon) * dy;
  }
};

absl::StatusOr<Kernel> LabelSmoothGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const TimesKept f{op.attrs().Float("epsilon")};
  return op.InPlace(dx, dout).Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, dout(ctx).size(),
                   MapOne<T, TimesKept>{f, dout.data<T>(ctx), dx.data<T>(ctx)});
  });
}

}  // namespace

void AddGpuLossKernels(KernelTable* table) {
  Add(table, "log_loss", {"Predicted", "Labels", "Loss"},
      [](const OpAttrs& attrs) { return formulas::LogLoss{attrs.Float("epsilon")}; });
  Add(table, "bce_loss", {"X", "Label", "Out"}, [](const OpAttrs&) { return formulas::BceLoss(); });
  Add(table, "hinge_loss", {"Logits", "Labels", "Loss"},
      [](const OpAttrs&) { return formulas::HingeLoss(); });
  table->Add("huber_loss", HuberLoss, HuberLossGrad);
  table->Add(
      "sigmoid_cross_entropy_with_logits",
      [](const KernelSpec& spec) { return SigmoidCrossEntropy(spec, "Out", false); },
      [](const KernelSpec& spec) { return SigmoidCrossEntropy(spec, "X@GRAD", true); });
  table->Add("cross_entropy", CrossEntropy, CrossEntropyGrad);
  table->Add("cross_entropy2", CrossEntropy);
  table->Add("cross_entropy_grad2", CrossEntropyGrad);
  table->Add("label_smooth", LabelSmooth, LabelSmoothGrad);
}

}  // namespace weft
