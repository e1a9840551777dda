// Losses with dedicated ops.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr double kLargestLoss = 1e20;  // the value of -log 0

// --- One number per element ----------------------------------------------------------------------

// Out = f(a, b), elementwise, with the attribute `c`; its gradients are da and db times dOut.
// Unread inputs are 0.
struct PairLoss {
  const char *a, *b, *out, *attr;
  double (*f)(double a, double b, double c);
  double (*da)(double a, double b, double c);
};

absl::StatusOr<Kernel> PairForward(const KernelSpec& spec, const PairLoss& loss) {
  OpKernel op(spec);
  const In a = op.in(loss.a), b = op.in(loss.b);
  const Out out = op.out(loss.out);
  const double c = loss.attr == nullptr ? 0 : spec.attrs.Float(loss.attr);
  return op.InPlace(out, a).InPlace(out, b).Make(
      Floats(a), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T *as = a.data<T>(ctx), *bs = b.data<T>(ctx);
        T* to = out.data<T>(ctx);
        for (int64_t i = 0; i < a(ctx).size(); ++i) to[i] = static_cast<T>(loss.f(as[i], bs[i], c));
      });
}

absl::StatusOr<Kernel> PairBackward(const KernelSpec& spec, const PairLoss& loss) {
  OpKernel op(spec);
  const In a = op.in(loss.a), b = op.in(loss.b), dout = op.in(absl::StrCat(loss.out, "@GRAD"));
  const Out da = op.out(absl::StrCat(loss.a, "@GRAD"));
  const double c = loss.attr == nullptr ? 0 : spec.attrs.Float(loss.attr);
  return op.Make(Floats(a), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *as = a.data<T>(ctx), *bs = b.data<T>(ctx), *douts = dout.data<T>(ctx);
    T* to = da.data<T>(ctx);
    for (int64_t i = 0; i < a(ctx).size(); ++i) {
      to[i] = static_cast<T>(douts[i] * loss.da(as[i], bs[i], c));
    }
  });
}

double LogAtLeast(double x, double least) { return std::max(std::log(x), least); }

const PairLoss kLogLoss = {
    "Predicted",
    "Labels",
    "Loss",
    "epsilon",
    [](double p, double y, double e) {
      return -y * std::log(p + e) - (1 - y) * std::log(1 - p + e);
    },
    [](double p, double y, double e) { return -y / (p + e) + (1 - y) / (1 - p + e); }};
// Logarithms are limited to -100.
const PairLoss kBceLoss = {
    "X",
    "Label",
    "Out",
    nullptr,
    [](double p, double y, double) {
      return -y * LogAtLeast(p, -100) - (1 - y) * LogAtLeast(1 - p, -100);
    },
    [](double p, double y, double) { return (p - y) / std::max((1 - p) * p, 1e-12); }};
const PairLoss kHingeLoss = {
    "Logits",
    "Labels",
    "Loss",
    nullptr,
    [](double x, double y, double) { return std::max(0.0, 1 - x * (2 * y - 1)); },
    [](double x, double y, double) { return x * (2 * y - 1) < 1 ? 1 - 2 * y : 0; }};

void AddPairLoss(const char* type, const PairLoss& loss, KernelTable* table) {
  table->Add(type, [&loss](const KernelSpec& spec) { return PairForward(spec, loss); });
  table->Add(absl::StrCat(type, "_grad"),
             [&loss](const KernelSpec& spec) { return PairBackward(spec, loss); });
}

// Residual = Y - X; Out = r²/2, or delta (|r| - delta/2) beyond delta.
absl::StatusOr<Kernel> HuberLoss(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out"), residual = op.out("Residual");
  const double delta = spec.attrs.Float("delta");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T d = static_cast<T>(delta);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const T r = y.data<T>(ctx)[i] - x.data<T>(ctx)[i], a = std::fabs(r);
      residual.data<T>(ctx)[i] = r;
      out.data<T>(ctx)[i] = a <= d ? r * r / 2 : d * (a - d / 2);
    }
  });
}

absl::StatusOr<Kernel> HuberLossGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In residual = op.in("Residual"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const double delta = spec.attrs.Float("delta");
  return op.Make(Floats(residual), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T d = static_cast<T>(delta);
    T *dxs = dx.data_or_null<T>(ctx), *dys = dy.data_or_null<T>(ctx);
    for (int64_t i = 0; i < dout(ctx).size(); ++i) {
      const T r = residual.data<T>(ctx)[i];
      const T slope = (r > d ? d : r < -d ? -d : r) * dout.data<T>(ctx)[i];
      if (dxs != nullptr) dxs[i] = -slope;
      if (dys != nullptr) dys[i] = slope;
    }
  });
}

// Out = log(1 + exp(Left - Right)) - Label (Left - Right).
absl::StatusOr<Kernel> RankLoss(const KernelSpec& spec) {
  OpKernel op(spec);
  const In label = op.in("Label"), left = op.in("Left"), right = op.in("Right");
  const Out out = op.out("Out");
  return op.Make(Floats(label), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < label(ctx).size(); ++i) {
      const T d = left.data<T>(ctx)[i] - right.data<T>(ctx)[i];
      out.data<T>(ctx)[i] =
          std::max(d, T(0)) + std::log1p(std::exp(-std::fabs(d))) - label.data<T>(ctx)[i] * d;
    }
  });
}

absl::StatusOr<Kernel> RankLossGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In label = op.in("Label"), left = op.in("Left"), right = op.in("Right");
  const In dout = op.in("Out@GRAD");
  const Out dleft = op.out("Left@GRAD"), dright = op.out("Right@GRAD");
  return op.Make(Floats(label), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T *dl = dleft.data_or_null<T>(ctx), *dr = dright.data_or_null<T>(ctx);
    for (int64_t i = 0; i < label(ctx).size(); ++i) {
      const T d = left.data<T>(ctx)[i] - right.data<T>(ctx)[i];
      const T slope = dout.data<T>(ctx)[i] * (1 / (1 + std::exp(-d)) - label.data<T>(ctx)[i]);
      if (dl != nullptr) dl[i] = slope;
      if (dr != nullptr) dr[i] = -slope;
    }
  });
}

// --- Divergence ----------------------------------------------------------------------------------

// Target (log Target - X), 0 where Target is not positive; summed, or averaged, by `reduction`.
absl::StatusOr<Kernel> KlDiv(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), target = op.in("Target");
  const Out loss = op.out("Loss");
  return op.Make(Floats(x), [=, reduction = spec.attrs.String("reduction")](
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
    const int64_t n = reduction == "mean"        ? x(ctx).size()
                      : reduction == "batchmean" ? x(ctx).dim(0)
                                                 : 1;
    *loss.data<T>(ctx) = static_cast<T>(sum / n);
  });
}

absl::StatusOr<Kernel> KlDivGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), target = op.in("Target"), dloss = op.in("Loss@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=, reduction = spec.attrs.String("reduction")](
                                const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t n = reduction == "mean"        ? x(ctx).size()
                      : reduction == "batchmean" ? x(ctx).dim(0)
                                                 : 1;
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const T t = target.data<T>(ctx)[i];
      const T d = dloss.data<T>(ctx)[reduction == "none" ? i : 0];
      dx.data<T>(ctx)[i] = t > 0 ? -t * d / static_cast<T>(n) : T(0);
    }
  });
}

// --- Classes -------------------------------------------------------------------------------------

// Calls visit(row, class) for the labels, one per row; class -1 if it is ignored.
template <typename Visit>
absl::Status ForEachLabel(const Tensor& label, int64_t classes, int64_t ignored, Visit visit) {
  return ForElementType<int64_t, int32_t>("input Label", label, [&](auto tag) -> absl::Status {
    const auto* labels = label.data<typename decltype(tag)::type>();
    for (int64_t row = 0; row < label.size(); ++row) {
      const int64_t number = labels[row];
      if (number != ignored && (number < 0 || number >= classes)) {
        return absl::InvalidArgumentError(absl::StrCat("input Label: ", number, " at position ",
                                                       row, " is not in [0, ", classes, ")"));
      }
      visit(row, number == ignored ? -1 : number);
    }
    return absl::OkStatus();
  });
}

double MinusLog(double p) { return std::min(-std::log(p), kLargestLoss); }

// Y = -log X[label], for rows of probabilities; with soft_label -Σ Label log X. MatchX = X[label].
absl::StatusOr<Kernel> CrossEntropy(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), label = op.in("Label");
  const Out y = op.out("Y");
  const Out match = spec.schema->FindOutput("MatchX") != nullptr ? op.out("MatchX") : Out();
  const bool is_soft = spec.attrs.Has("soft_label") && spec.attrs.Bool("soft_label");
  const int64_t ignored = spec.attrs.Int("ignore_index");
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
          if (labels[i] != 0) sum += labels[i] * MinusLog(xs[i]);
        }
        to[row] = static_cast<T>(sum);
      }
      return absl::OkStatus();
    }
    return ForEachLabel(label(ctx), classes, ignored, [&](int64_t row, int64_t c) {
      const T p = c < 0 ? T(0) : xs[row * classes + c];
      to[row] = c < 0 ? T(0) : static_cast<T>(MinusLog(p));
      if (matches != nullptr) matches[row] = p;
    });
  });
}

// X@GRAD = -Y@GRAD / X at the label, -Y@GRAD Label / X for soft labels.
absl::StatusOr<Kernel> CrossEntropyGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In label = op.in("Label"), dy = op.in("Y@GRAD");
  const bool has_match = spec.schema->FindInput("MatchX") != nullptr;
  const In x = op.in(has_match ? "MatchX" : "X");  // one element per row, or the whole row
  op.Ignore({"XShape"});
  const Out dx = op.out("X@GRAD");
  const bool is_soft = spec.attrs.Has("soft_label") && spec.attrs.Bool("soft_label");
  const int64_t ignored = spec.attrs.Int("ignore_index");
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
absl::StatusOr<Kernel> NllLoss(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), label = op.in("Label"), weight = op.in("Weight");
  const Out out = op.out("Out"), total = op.out("Total_weight");
  const int64_t ignored = spec.attrs.Int("ignore_index");
  return op.Make(
      Floats(x),
      [=, reduction = spec.attrs.String("reduction")](const KernelContext& ctx,
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

absl::StatusOr<Kernel> NllLossGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), label = op.in("Label"), weight = op.in("Weight");
  const In total = op.in("Total_weight"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t ignored = spec.attrs.Int("ignore_index");
  return op.Make(
      Floats(x),
      [=, reduction = spec.attrs.String("reduction")](const KernelContext& ctx,
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
absl::StatusOr<Kernel> LabelSmooth(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), prior = op.in("PriorDist");
  const Out out = op.out("Out");
  const double epsilon = spec.attrs.Float("epsilon");
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

absl::StatusOr<Kernel> LabelSmoothGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const double epsilon = spec.attrs.Float("epsilon");
  return op.InPlace(dx, dout).Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < dout(ctx).size(); ++i) {
      dx.data<T>(ctx)[i] = static_cast<T>(1 - epsilon) * dout.data<T>(ctx)[i];
    }
  });
}

}  // namespace

void AddLossKernels(KernelTable* table) {
  AddPairLoss("bce_loss", kBceLoss, table);
  AddPairLoss("hinge_loss", kHingeLoss, table);
  AddPairLoss("log_loss", kLogLoss, table);
  table->Add("huber_loss", HuberLoss);
  table->Add("huber_loss_grad", HuberLossGrad);
  table->Add("rank_loss", RankLoss);
  table->Add("rank_loss_grad", RankLossGrad);
  table->Add("kldiv_loss", KlDiv);
  table->Add("kldiv_loss_grad", KlDivGrad);
  table->Add("cross_entropy", CrossEntropy);
  table->Add("cross_entropy_grad", CrossEntropyGrad);
  table->Add("cross_entropy2", CrossEntropy);
  table->Add("cross_entropy_grad2", CrossEntropyGrad);
  table->Add("nll_loss", NllLoss);
  table->Add("nll_loss_grad", NllLossGrad);
  table->Add("label_smooth", LabelSmooth);
  table->Add("label_smooth_grad", LabelSmoothGrad);
}

}  // namespace weft
