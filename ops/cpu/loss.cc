// Losses with dedicated ops.
#include "ops/formulas/loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- One number per element ----------------------------------------------------------------------

// The slots of Out = f.Out(a, b).
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
        return op.InPlace(out, a).InPlace(out, b).MakeElementwise(
            Floats(a), out, [f = make(op.attrs())](double a, double b) { return f.Out(a, b); }, a,
            b);
      },
      [=](OpKernel op) {
        const In a = op.in(loss.a), b = op.in(loss.b);
        const In dout = op.in(absl::StrCat(loss.out, "@GRAD"));
        return op.MakeElementwise(
            Floats(a), op.out(absl::StrCat(loss.a, "@GRAD")),
            [f = make(op.attrs())](double a, double b, double d) { return d * f.Da(a, b); }, a, b,
            dout);
      });
}

void AddPairLosses(KernelTable* table) {
  Add(table, "log_loss", {"Predicted", "Labels", "Loss"},
      [](const OpAttrs& attrs) { return formulas::LogLoss{attrs.Float("epsilon")}; });
  Add(table, "bce_loss", {"X", "Label", "Out"}, [](const OpAttrs&) { return formulas::BceLoss(); });
  Add(table, "hinge_loss", {"Logits", "Labels", "Loss"},
      [](const OpAttrs&) { return formulas::HingeLoss(); });
}

// Residual = Y - X; Out is the loss of that.
absl::StatusOr<Kernel> HuberLoss(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const auto loss = [f = formulas::HuberLoss{op.attrs().Float("delta")}](auto x, auto y) {
    return std::array{y - x, f.Out(y - x)};
  };
  return op.MakeElementwise(Floats(x), std::array{op.out("Residual"), op.out("Out")}, loss, x, y);
}

absl::StatusOr<Kernel> HuberLossGrad(OpKernel op) {
  const In residual = op.in("Residual"), dout = op.in("Out@GRAD");
  const auto gradients = [f = formulas::HuberLoss{op.attrs().Float("delta")}](auto r, auto dy) {
    const auto slope = f.Slope(r) * dy;
    return std::array{-slope, slope};
  };
  return op.MakeElementwise(Floats(residual), std::array{op.out("X@GRAD"), op.out("Y@GRAD")},
                            gradients, residual, dout);
}

// Out = log(1 + exp(Left - Right)) - Label (Left - Right).
absl::StatusOr<Kernel> RankLoss(OpKernel op) {
  const In label = op.in("Label"), left = op.in("Left"), right = op.in("Right");
  const auto loss = [](auto y, auto l, auto r) {
    const auto d = l - r;
    return std::max(d, decltype(d)(0)) + std::log1p(std::exp(-std::fabs(d))) - y * d;
  };
  return op.MakeElementwise(Floats(label), op.out("Out"), loss, label, left, right);
}

absl::StatusOr<Kernel> RankLossGrad(OpKernel op) {
  const In label = op.in("Label"), left = op.in("Left"), right = op.in("Right");
  const In dout = op.in("Out@GRAD");
  const auto gradients = [](auto y, auto l, auto r, auto dy) {
    const auto slope = dy * (1 / (1 + std::exp(-(l - r))) - y);
    return std::array{slope, -slope};
  };
  return op.MakeElementwise(Floats(label), std::array{op.out("Left@GRAD"), op.out("Right@GRAD")},
                            gradients, label, left, right, dout);
}

// --- Cross entropy of independent binary predictions, given as logits ----------------------------

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
absl::StatusOr<Kernel> SigmoidCrossEntropy(OpKernel op) {
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
absl::StatusOr<Kernel> SigmoidCrossEntropyGrad(OpKernel op) {
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

// --- Divergence ----------------------------------------------------------------------------------

int64_t Divisor(const std::string& reduction, const Tensor& x) {
  return reduction == "mean" ? x.size() : reduction == "batchmean" ? x.dim(0) : 1;
}

// Target (log Target - X), 0 where Target is not positive; summed, or averaged, by `reduction`.
absl::StatusOr<Kernel> KlDiv(OpKernel op) {
  const In x = op.in("X"), target = op.in("Target");
  const Out loss = op.out("Loss");
  return op.Make(Floats(x), [=, reduction = op.attrs().String("reduction")](
                                const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    double sum = 0;
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const double t = target.data<T>(ctx)[i];
      const double value = t > 0 ? t * (std::log(t) - x.data<T>(ctx)[i]) : 0;
      if (reduction == "none") loss.data<T>(ctx)[i] = static_cast<T>(value);
      sum += value;
    }
    if (reduction == "none") return;
    const int64_t n = Divisor(reduction, x(ctx));
    *loss.data<T>(ctx) = static_cast<T>(sum / n);
  });
}

absl::StatusOr<Kernel> KlDivGrad(OpKernel op) {
  const In x = op.in("X"), target = op.in("Target"), dloss = op.in("Loss@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=, reduction = op.attrs().String("reduction")](
                                const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t n = Divisor(reduction, x(ctx));
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const T t = target.data<T>(ctx)[i];
      const T d = dloss.data<T>(ctx)[reduction == "none" ? i : 0];
      dx.data<T>(ctx)[i] = t > 0 ? -t * d / static_cast<T>(n) : T(0);
    }
  });
}

// --- Classes -------------------------------------------------------------------------------------

// Y = -log X[label], for rows of probabilities; with soft_label -Σ Label log X. MatchX = X[label].
absl::StatusOr<Kernel> CrossEntropy(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label");
  const Out y = op.out("Y");
  const Out match = op.spec().schema->FindOutput("MatchX") != nullptr ? op.out("MatchX") : Out();
  const bool is_soft = op.attrs().Has("soft_label") && op.attrs().Bool("soft_label");
  const int64_t ignored = op.attrs().Int("ignore_index");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t classes = x(ctx).dims().back();
    const T* xs = x.data<T>(ctx);
    T *to = y.data<T>(ctx), *matches = match.data_or_null<T>(ctx);
    if (is_soft) {
      const T* labels = label.data<T>(ctx);
      for (int64_t row = 0; row < y(ctx).size(); ++row) {
        double sum = 0;
        for (int64_t i = row * classes; i < (row + 1) * classes; ++i) {
          if (labels[i] != 0) sum += labels[i] * formulas::MinusLog(xs[i]);
        }
        to[row] = static_cast<T>(sum);
      }
      return absl::OkStatus();
    }
    return ForEachLabel(label(ctx), classes, ignored, [&](int64_t row, int64_t c) {
      const T p = c < 0 ? T(0) : xs[row * classes + c];
      to[row] = c < 0 ? T(0) : static_cast<T>(formulas::MinusLog(p));
      if (matches != nullptr) matches[row] = p;
    });
  });
}

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
    const int64_t classes = dx(ctx).dims().back();
    const T *xs = x.data<T>(ctx), *dys = dy.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    if (is_soft) {
      const T* labels = label.data<T>(ctx);
      for (int64_t i = 0; i < dx(ctx).size(); ++i) to[i] = -dys[i / classes] * labels[i] / xs[i];
      return absl::OkStatus();
    }
    std::fill_n(to, dx(ctx).size(), T(0));
    return ForEachLabel(label(ctx), classes, ignored, [&](int64_t row, int64_t c) {
      if (c < 0) return;
      const int64_t at = row * classes + c;
      to[at] = -dys[row] / xs[has_match ? row : at];
    });
  });
}

// Out = -Weight[label] X[label] per row, their sum, or their weighted mean; Total_weight is the sum
// of the weights. X is [rows, classes] or [rows, classes, ...].
absl::StatusOr<Kernel> NllLoss(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), weight = op.in("Weight");
  const Out out = op.out("Out"), total = op.out("Total_weight");
  const int64_t ignored = op.attrs().Int("ignore_index");
  return op.Make(
      Floats(x),
      [=, reduction = op.attrs().String("reduction")](const KernelContext& ctx,
                                                      auto zero) -> absl::Status {
        using T = decltype(zero);
        const int64_t classes = x(ctx).dim(1),
                      inner = x(ctx).size() == 0 ? 1 : x(ctx).size() / x(ctx).dim(0) / classes;
        double sum = 0, weights = 0;
        WEFT_RETURN_IF_ERROR(
            ForEachLabel(label(ctx), classes, ignored, [&](int64_t row, int64_t c) {
              double w = 0, loss = 0;
              if (c >= 0) {
                w = weight ? weight.data<T>(ctx)[c] : 1;
                loss = -w * x.data<T>(ctx)[(row / inner * classes + c) * inner + row % inner];
              }
              if (reduction == "none") out.data<T>(ctx)[row] = static_cast<T>(loss);
              sum += loss;
              weights += w;
            }));
        if (reduction != "none") {
          *out.data<T>(ctx) =
              static_cast<T>(reduction == "mean" && weights != 0 ? sum / weights : sum);
        }
        if (T* to = total.data_or_null<T>(ctx))
          *to = static_cast<T>(reduction == "none" ? 0 : weights);
        return absl::OkStatus();
      });
}

absl::StatusOr<Kernel> NllLossGrad(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), weight = op.in("Weight");
  const In total = op.in("Total_weight"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t ignored = op.attrs().Int("ignore_index");
  return op.Make(
      Floats(x),
      [=, reduction = op.attrs().String("reduction")](const KernelContext& ctx,
                                                      auto zero) -> absl::Status {
        using T = decltype(zero);
        const int64_t classes = x(ctx).dim(1),
                      inner = x(ctx).size() == 0 ? 1 : x(ctx).size() / x(ctx).dim(0) / classes;
        T* to = dx.data<T>(ctx);
        std::fill_n(to, dx(ctx).size(), T(0));
        return ForEachLabel(label(ctx), classes, ignored, [&](int64_t row, int64_t c) {
          if (c < 0) return;
          T d = -(weight ? weight.data<T>(ctx)[c] : T(1)) *
                dout.data<T>(ctx)[reduction == "none" ? row : 0];
          if (reduction == "mean") d /= *total.data<T>(ctx);
          to[(row / inner * classes + c) * inner + row % inner] = d;
        });
      });
}

// Out = (1 - epsilon) X + epsilon PriorDist, or epsilon / classes.
absl::StatusOr<Kernel> LabelSmooth(OpKernel op) {
  const In x = op.in("X"), prior = op.in("PriorDist");
  const Out out = op.out("Out");
  const double epsilon = op.attrs().Float("epsilon");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t classes = x(ctx).dims().back();
    const T e = static_cast<T>(epsilon);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const T share = prior ? prior.data<T>(ctx)[i % classes] : T(1) / classes;
      out.data<T>(ctx)[i] = (1 - e) * x.data<T>(ctx)[i] + e * share;
    }
  });
}

absl::StatusOr<Kernel> LabelSmoothGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.InPlace(dx, dout).MakeElementwise(
      Floats(dout), dx,
      [epsilon = op.attrs().Float("epsilon")](auto dy) {
        return static_cast<decltype(dy)>(1 - epsilon) * dy;
      },
      dout);
}

}  // namespace

void AddLossKernels(KernelTable* table) {
  AddPairLosses(table);
  table->Add("huber_loss", HuberLoss, HuberLossGrad);
  table->Add("rank_loss", RankLoss, RankLossGrad);
  table->Add("sigmoid_cross_entropy_with_logits", SigmoidCrossEntropy, SigmoidCrossEntropyGrad);
  table->Add("kldiv_loss", KlDiv, KlDivGrad);
  table->Add("cross_entropy", CrossEntropy, CrossEntropyGrad);
  table->Add("cross_entropy2", CrossEntropy);
  table->Add("cross_entropy_grad2", CrossEntropyGrad);
  table->Add("nll_loss", NllLoss, NllLossGrad);
  table->Add("label_smooth", LabelSmooth, LabelSmoothGrad);
}

}  // namespace weft
