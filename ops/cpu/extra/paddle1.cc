// Layers and losses that Paddle 1 has ops for (ops/schema/extra/paddle1_schemas.cc).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// log(1 + exp(x))
double SoftPlus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// --- smooth_l1_loss ------------------------------------------------------------------------------

// Diff = InsideWeight (X - Y). Out: the sums over each row of OutsideWeight f(Diff), with f(d) =
// sigma² d² / 2 where |d| < 1 / sigma², else |d| - 1 / (2 sigma²).
absl::StatusOr<Kernel> SmoothL1Loss(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const In inside = op.in("InsideWeight"), outside = op.in("OutsideWeight");
  const Out diff = op.out("Diff"), out = op.out("Out");
  const double sigma = op.attrs().Float("sigma"), sigma2 = sigma * sigma;
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx);
    const T* const in_weights = inside.data_or_null<T>(ctx);
    const T* const out_weights = outside.data_or_null<T>(ctx);
    T *const diffs = diff.data_or_null<T>(ctx), *const to = out.data_or_null<T>(ctx);
    const int64_t rows = x(ctx).dim(0), width = rows == 0 ? 0 : x(ctx).size() / rows;
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        const T d = (xs[i] - ys[i]) * (in_weights == nullptr ? T(1) : in_weights[i]);
        if (diffs != nullptr) diffs[i] = d;
        const double size = std::fabs(double{d});
        const double loss = size < 1 / sigma2 ? sigma2 * size * size / 2 : size - 0.5 / sigma2;
        sum += loss * (out_weights == nullptr ? 1.0 : double{out_weights[i]});
      }
      if (to != nullptr) to[row] = static_cast<T>(sum);
    }
  });
}

absl::StatusOr<Kernel> SmoothL1LossGrad(OpKernel op) {
  const In diff = op.in("Diff"), dout = op.in("Out@GRAD");
  const In inside = op.in("InsideWeight"), outside = op.in("OutsideWeight");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const double sigma = op.attrs().Float("sigma"), sigma2 = sigma * sigma;
  return op.Make(Floats(diff), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *diffs = diff.data<T>(ctx), *douts = dout.data<T>(ctx);
    const T* const in_weights = inside.data_or_null<T>(ctx);
    const T* const out_weights = outside.data_or_null<T>(ctx);
    T *const dxs = dx.data_or_null<T>(ctx), *const dys = dy.data_or_null<T>(ctx);
    const int64_t rows = diff(ctx).dim(0), width = rows == 0 ? 0 : diff(ctx).size() / rows;
    for (int64_t i = 0; i < rows * width; ++i) {
      const double d = diffs[i];
      double slope = std::fabs(d) < 1 / sigma2 ? sigma2 * d : (d > 0) - (d < 0);
      if (in_weights != nullptr) slope *= in_weights[i];
      if (out_weights != nullptr) slope *= out_weights[i];
      const T gradient = static_cast<T>(slope * douts[i / width]);
      if (dxs != nullptr) dxs[i] = gradient;
      if (dys != nullptr) dys[i] = -gradient;
    }
  });
}

// --- Ranking -------------------------------------------------------------------------------------

// Out = max(margin - Label (X1 - X2), 0); Activated = Out > 0.
absl::StatusOr<Kernel> MarginRankLoss(OpKernel op) {
  const In label = op.in("Label"), x1 = op.in("X1"), x2 = op.in("X2");
  const double margin = op.attrs().Float("margin");
  const auto loss = [margin](auto label, auto x1, auto x2) {
    const auto out = static_cast<decltype(x1)>(margin) - label * (x1 - x2);
    return std::array{out > 0 ? out : 0, static_cast<decltype(x1)>(out > 0)};
  };
  return op.MakeElementwise(Floats(label), std::array{op.out("Out"), op.out("Activated")}, loss,
                            label, x1, x2);
}

absl::StatusOr<Kernel> MarginRankLossGrad(OpKernel op) {
  const In label = op.in("Label"), activated = op.in("Activated"), dout = op.in("Out@GRAD");
  const auto gradients = [](auto label, auto activated, auto dout) {
    const auto dx2 = label * activated * dout;
    return std::array{-dx2, dx2};
  };
  return op.MakeElementwise(Floats(label), std::array{op.out("X1@GRAD"), op.out("X2@GRAD")},
                            gradients, label, activated, dout);
}

// Y = the mean over the other classes k of log(1 + exp(X[k] - X[Label])). Hidasi et al.,
// "Session-based Recommendations with Recurrent Neural Networks" (2016).
absl::StatusOr<Kernel> BprLoss(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label");
  const Out y = op.out("Y");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t classes = x(ctx).dim(1);
    T* const to = y.data<T>(ctx);
    return ForEachLabel(label(ctx), classes, -1, [&](int64_t row, int64_t chosen) {
      const T* const scores = x.data<T>(ctx) + row * classes;
      double sum = 0;
      for (int64_t k = 0; k < classes && chosen >= 0; ++k) {
        if (k != chosen) sum += SoftPlus(double{scores[k]} - scores[chosen]);
      }
      to[row] = static_cast<T>(sum / static_cast<double>(classes - 1));
    });
  });
}

absl::StatusOr<Kernel> BprLossGrad(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), dy = op.in("Y@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t classes = x(ctx).dim(1);
    std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
    return ForEachLabel(label(ctx), classes, -1, [&](int64_t row, int64_t chosen) {
      if (chosen < 0) return;
      const T* const scores = x.data<T>(ctx) + row * classes;
      T* const to = dx.data<T>(ctx) + row * classes;
      const double share = dy.data<T>(ctx)[row] / static_cast<double>(classes - 1);
      double sum = 0;
      for (int64_t k = 0; k < classes; ++k) {
        if (k == chosen) continue;
        const double gradient = share * Sigmoid(double{scores[k]} - scores[chosen]);
        to[k] = static_cast<T>(gradient);
        sum += gradient;
      }
      to[chosen] = static_cast<T>(-sum);
    });
  });
}

// --- teacher_student_sigmoid_loss ----------------------------------------------------------------

// Cross entropies of sigmoid(X) with a click and with a teacher's score, which Label has together:
// -2 no click, -1 a click, both without a score; else the score, plus 1 for a click.
struct Scored {
  double click = 0, score = 0;
  bool has_score = false;
  explicit Scored(double label)
      : click(label < -1  ? 0
              : label < 0 ? 1
              : label < 1 ? 0
                          : 1),
        score(label - click),
        has_score(label >= 0) {}
};

absl::StatusOr<Kernel> TeacherStudent(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label");
  const auto loss = [](double x, double label) {
    const Scored target(label);
    const double first = SoftPlus(x) - target.click * x;
    return target.has_score ? first + SoftPlus(x) - target.score * x : first;
  };
  return op.MakeElementwise(Floats(x), op.out("Y"), loss, x, label);
}

// Zero where X is outside of the bounds.
absl::StatusOr<Kernel> TeacherStudentGrad(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), dy = op.in("Y@GRAD");
  const double low = op.attrs().Float("soft_max_lower_bound");
  const double high = op.attrs().Float("soft_max_up_bound");
  const auto gradient = [=](double x, double label, double dy) {
    if (!(x > low && x < high)) return 0.0;
    const Scored target(label);
    const double first = Sigmoid(x) - target.click;
    return dy * (target.has_score ? first + Sigmoid(x) - target.score : first);
  };
  return op.MakeElementwise(Floats(x), op.out("X@GRAD"), gradient, x, label, dy);
}

// --- cos_sim -------------------------------------------------------------------------------------

template <typename T>
double DotOf(const T* a, const T* b, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// Out = X·Y / (XNorm YNorm), row by row, or with the one row of Y.
absl::StatusOr<Kernel> CosSim(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out"), x_norm = op.out("XNorm"), y_norm = op.out("YNorm");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = x(ctx).dim(0), width = x(ctx).dim(1), y_rows = y(ctx).dim(0);
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx);
    T *const to = out.data_or_null<T>(ctx), *const x_to = x_norm.data_or_null<T>(ctx);
    T* const y_to = y_norm.data_or_null<T>(ctx);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t y_row = y_rows == 1 ? 0 : row;
      const T *a = xs + row * width, *b = ys + y_row * width;
      const double a_norm = std::sqrt(DotOf(a, a, width)), b_norm = std::sqrt(DotOf(b, b, width));
      if (to != nullptr) to[row] = static_cast<T>(DotOf(a, b, width) / (a_norm * b_norm));
      if (x_to != nullptr) x_to[row] = static_cast<T>(a_norm);
      if (y_to != nullptr) y_to[y_row] = static_cast<T>(b_norm);
    }
  });
}

absl::StatusOr<Kernel> CosSimGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const In x_norm = op.in("XNorm"), y_norm = op.in("YNorm");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = x(ctx).dim(0), width = x(ctx).dim(1), y_rows = y(ctx).dim(0);
    T *const x_to = dx.data_or_null<T>(ctx), *const y_to = dy.data_or_null<T>(ctx);
    if (y_to != nullptr) std::fill_n(y_to, dy(ctx).size(), T(0));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t y_row = y_rows == 1 ? 0 : row;
      const T *a = x.data<T>(ctx) + row * width, *b = y.data<T>(ctx) + y_row * width;
      const double a_norm = x_norm.data<T>(ctx)[row], b_norm = y_norm.data<T>(ctx)[y_row];
      const double cosine = out.data<T>(ctx)[row], d = dout.data<T>(ctx)[row];
      for (int64_t i = 0; i < width; ++i) {
        const double da = b[i] / (a_norm * b_norm) - cosine * a[i] / (a_norm * a_norm);
        const double db = a[i] / (a_norm * b_norm) - cosine * b[i] / (b_norm * b_norm);
        if (x_to != nullptr) x_to[row * width + i] = static_cast<T>(d * da);
        if (y_to != nullptr) y_to[y_row * width + i] += static_cast<T>(d * db);
      }
    }
  });
}

// --- Steps of recurrent layers -------------------------------------------------------------------

// X holds i, f, o and g of each row: C = sigmoid(f + forget_bias) C_prev + sigmoid(i) tanh(g);
// H = sigmoid(o) tanh(C).
absl::StatusOr<Kernel> LstmUnit(OpKernel op) {
  const In x = op.in("X"), c_prev = op.in("C_prev");
  const Out c = op.out("C"), h = op.out("H");
  const double forget_bias = op.attrs().Float("forget_bias");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = c_prev(ctx).dim(1);
    T *const c_to = c.data_or_null<T>(ctx), *const h_to = h.data_or_null<T>(ctx);
    for (int64_t k = 0; k < c_prev(ctx).size(); ++k) {
      const T* const gates = x.data<T>(ctx) + k / width * 4 * width + k % width;
      const double cell = Sigmoid(gates[width] + forget_bias) * c_prev.data<T>(ctx)[k] +
                          Sigmoid(gates[0]) * std::tanh(double{gates[3 * width]});
      if (c_to != nullptr) c_to[k] = static_cast<T>(cell);
      if (h_to != nullptr) h_to[k] = static_cast<T>(Sigmoid(gates[2 * width]) * std::tanh(cell));
    }
  });
}

absl::StatusOr<Kernel> LstmUnitGrad(OpKernel op) {
  const In x = op.in("X"), c_prev = op.in("C_prev"), c = op.in("C");
  const In dc = op.in("C@GRAD"), dh = op.in("H@GRAD");
  const Out dx = op.out("X@GRAD"), dc_prev = op.out("C_prev@GRAD");
  const double forget_bias = op.attrs().Float("forget_bias");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = c_prev(ctx).dim(1);
    const T *dcs = dc.data_or_null<T>(ctx), *dhs = dh.data_or_null<T>(ctx);
    T *const x_to = dx.data_or_null<T>(ctx), *const c_to = dc_prev.data_or_null<T>(ctx);
    for (int64_t k = 0; k < c_prev(ctx).size(); ++k) {
      const int64_t first = k / width * 4 * width + k % width;
      const T* const gates = x.data<T>(ctx) + first;
      const double i = Sigmoid(gates[0]), f = Sigmoid(gates[width] + forget_bias);
      const double o = Sigmoid(gates[2 * width]), g = std::tanh(double{gates[3 * width]});
      const double of_cell = std::tanh(double{c.data<T>(ctx)[k]});
      const double out = dhs == nullptr ? 0.0 : double{dhs[k]};
      const double cell =
          (dcs == nullptr ? 0.0 : double{dcs[k]}) + out * o * (1 - of_cell * of_cell);
      if (c_to != nullptr) c_to[k] = static_cast<T>(cell * f);
      if (x_to == nullptr) continue;
      x_to[first] = static_cast<T>(cell * g * i * (1 - i));
      x_to[first + width] = static_cast<T>(cell * c_prev.data<T>(ctx)[k] * f * (1 - f));
      x_to[first + 2 * width] = static_cast<T>(out * of_cell * o * (1 - o));
      x_to[first + 3 * width] = static_cast<T>(cell * i * (1 - g * g));
    }
  });
}

// By the number that gru_unit has for it.
double Activate(int64_t kind, double x) {
  if (kind == 1) return Sigmoid(x);
  if (kind == 2) return std::tanh(x);
  return kind == 3 ? std::max(x, 0.0) : x;
}
double ActivationSlope(int64_t kind, double out) {
  if (kind == 1) return out * (1 - out);
  if (kind == 2) return 1 - out * out;
  return kind == 3 ? (out > 0 ? 1 : 0) : 1;
}

// Of one width: to[n] += Σ h[k] weights[k, n]; the weights of the gates u and r are [width,
// 2 width], and then come those of the candidate, [width, width].
template <typename T>
struct GruWeights {
  const T* all;
  int64_t width;
  double Gate(int64_t k, int64_t n) const { return all[k * 2 * width + n]; }
  double Candidate(int64_t k, int64_t n) const { return all[2 * width * width + k * width + n]; }
};

// u, r = gate_activation of Input + Bias + HiddenPrev Weight; ResetHiddenPrev = r HiddenPrev;
// c = activation(Input + Bias + ResetHiddenPrev Weight). Hidden = (1 - u) HiddenPrev + u c, with
// origin_mode u HiddenPrev + (1 - u) c. Gate holds u, r and c. Cho et al., "Learning Phrase
// Representations using RNN Encoder-Decoder for Statistical Machine Translation" (2014).
absl::StatusOr<Kernel> GruUnit(OpKernel op) {
  const In input = op.in("Input"), hidden_prev = op.in("HiddenPrev"), weight = op.in("Weight");
  const In bias = op.in("Bias");
  const Out gate = op.out("Gate"), reset = op.out("ResetHiddenPrev"), hidden = op.out("Hidden");
  const int64_t activation = op.attrs().Int("activation");
  const int64_t gate_activation = op.attrs().Int("gate_activation");
  const bool is_origin = op.attrs().Bool("origin_mode");
  return op.Make(Floats(input), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = hidden_prev(ctx).dim(0), width = hidden_prev(ctx).dim(1);
    const GruWeights<T> weights{weight.data<T>(ctx), width};
    const T* const biases = bias.data_or_null<T>(ctx);
    T *const gates_to = gate.data_or_null<T>(ctx), *const reset_to = reset.data_or_null<T>(ctx);
    T* const to = hidden.data_or_null<T>(ctx);
    std::vector<double> gates(3 * width), resets(width);
    for (int64_t row = 0; row < rows; ++row) {
      const T* const h = hidden_prev.data<T>(ctx) + row * width;
      for (int64_t n = 0; n < 3 * width; ++n) {
        gates[n] = input.data<T>(ctx)[row * 3 * width + n];
        if (biases != nullptr) gates[n] += biases[n];
      }
      for (int64_t n = 0; n < 2 * width; ++n) {
        for (int64_t k = 0; k < width; ++k) gates[n] += h[k] * weights.Gate(k, n);
        gates[n] = Activate(gate_activation, gates[n]);
      }
      for (int64_t k = 0; k < width; ++k) resets[k] = gates[width + k] * h[k];
      for (int64_t n = 0; n < width; ++n) {
        double& candidate = gates[2 * width + n];
        for (int64_t k = 0; k < width; ++k) candidate += resets[k] * weights.Candidate(k, n);
        candidate = Activate(activation, candidate);
        const double u = gates[n], change = is_origin ? h[n] - candidate : candidate - h[n];
        const double next = (is_origin ? candidate : h[n]) + u * change;
        if (to != nullptr) to[row * width + n] = static_cast<T>(next);
        if (reset_to != nullptr) reset_to[row * width + n] = static_cast<T>(resets[n]);
      }
      if (gates_to == nullptr) continue;
      for (int64_t n = 0; n < 3 * width; ++n) {
        gates_to[row * 3 * width + n] = static_cast<T>(gates[n]);
      }
    }
  });
}

absl::StatusOr<Kernel> GruUnitGrad(OpKernel op) {
  op.Ignore({"Input", "Bias"});
  const In hidden_prev = op.in("HiddenPrev"), weight = op.in("Weight"), gate = op.in("Gate");
  const In reset = op.in("ResetHiddenPrev"), dhidden = op.in("Hidden@GRAD");
  const Out dinput = op.out("Input@GRAD"), dhidden_prev = op.out("HiddenPrev@GRAD");
  const Out dweight = op.out("Weight@GRAD"), dbias = op.out("Bias@GRAD");
  const int64_t activation = op.attrs().Int("activation");
  const int64_t gate_activation = op.attrs().Int("gate_activation");
  const bool is_origin = op.attrs().Bool("origin_mode");
  return op.Make(Floats(gate), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = hidden_prev(ctx).dim(0), width = hidden_prev(ctx).dim(1);
    const GruWeights<T> weights{weight.data<T>(ctx), width};
    T *const input_to = dinput.data_or_null<T>(ctx), *const bias_to = dbias.data_or_null<T>(ctx);
    T *const h_to = dhidden_prev.data_or_null<T>(ctx), *const w_to = dweight.data_or_null<T>(ctx);
    std::vector<double> w_sums(3 * width * width), bias_sums(3 * width);
    std::vector<double> dgates(3 * width), dh(width), dreset(width);
    for (int64_t row = 0; row < rows; ++row) {
      const T* const h = hidden_prev.data<T>(ctx) + row * width;
      const T* const gates = gate.data<T>(ctx) + row * 3 * width;
      const T* const resets = reset.data<T>(ctx) + row * width;
      const T* const d = dhidden.data<T>(ctx) + row * width;
      for (int64_t n = 0; n < width; ++n) {
        const double u = gates[n], candidate = gates[2 * width + n];
        const double of_candidate = is_origin ? 1 - u : u;
        const double change = is_origin ? h[n] - candidate : candidate - h[n];
        dgates[n] = d[n] * change * ActivationSlope(gate_activation, u);
        dgates[2 * width + n] = d[n] * of_candidate * ActivationSlope(activation, candidate);
        dh[n] = d[n] * (1 - of_candidate);
      }
      for (int64_t k = 0; k < width; ++k) {
        dreset[k] = 0;
        for (int64_t n = 0; n < width; ++n) {
          dreset[k] += dgates[2 * width + n] * weights.Candidate(k, n);
          w_sums[2 * width * width + k * width + n] += resets[k] * dgates[2 * width + n];
        }
        const double r = gates[width + k];
        dgates[width + k] = dreset[k] * h[k] * ActivationSlope(gate_activation, r);
        dh[k] += dreset[k] * r;
      }
      for (int64_t k = 0; k < width; ++k) {
        for (int64_t n = 0; n < 2 * width; ++n) {
          dh[k] += dgates[n] * weights.Gate(k, n);
          w_sums[k * 2 * width + n] += h[k] * dgates[n];
        }
        if (h_to != nullptr) h_to[row * width + k] = static_cast<T>(dh[k]);
      }
      for (int64_t n = 0; n < 3 * width; ++n) {
        bias_sums[n] += dgates[n];
        if (input_to != nullptr) input_to[row * 3 * width + n] = static_cast<T>(dgates[n]);
      }
    }
    const auto store = [](const std::vector<double>& sums, T* to) {
      for (size_t i = 0; to != nullptr && i < sums.size(); ++i) to[i] = static_cast<T>(sums[i]);
    };
    store(w_sums, w_to);
    store(bias_sums, bias_to);
  });
}

// --- Conditional random fields -------------------------------------------------------------------

// Scores of chains of tags, in double precision: Lafferty, McCallum and Pereira, "Conditional
// Random Fields: Probabilistic Models for Segmenting and Labeling Sequence Data" (2001).
template <typename T>
struct Chain {
  const T *emission, *transition;
  int64_t tags;
  double Emission(int64_t step, int64_t tag) const { return emission[step * tags + tag]; }
  double First(int64_t tag) const { return transition[tag]; }
  double Last(int64_t tag) const { return transition[tags + tag]; }
  double Move(int64_t from, int64_t to) const { return transition[(2 + from) * tags + to]; }
};

double LogSumExp(const std::vector<double>& values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// Logarithms of the sums over all beginnings of a chain that end in each tag of each step, and over
// all ends that follow it.
struct Messages {
  std::vector<double> forward, backward;
  double log_sum = 0;
};

template <typename T>
Messages PassMessages(const Chain<T>& chain, int64_t steps) {
  const int64_t tags = chain.tags;
  Messages all;
  all.forward.resize(steps * tags);
  all.backward.resize(steps * tags);
  std::vector<double> terms(tags);
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t tag = 0; tag < tags; ++tag) {
      for (int64_t from = 0; step > 0 && from < tags; ++from) {
        terms[from] = all.forward[(step - 1) * tags + from] + chain.Move(from, tag);
      }
      all.forward[step * tags + tag] =
          chain.Emission(step, tag) + (step == 0 ? chain.First(tag) : LogSumExp(terms));
    }
  }
  for (int64_t step = steps - 1; step >= 0; --step) {
    for (int64_t tag = 0; tag < tags; ++tag) {
      for (int64_t to = 0; step + 1 < steps && to < tags; ++to) {
        terms[to] = chain.Move(tag, to) + chain.Emission(step + 1, to) +
                    all.backward[(step + 1) * tags + to];
      }
      all.backward[step * tags + tag] = step + 1 == steps ? chain.Last(tag) : LogSumExp(terms);
    }
  }
  for (int64_t tag = 0; tag < tags; ++tag) {
    terms[tag] = all.forward[(steps - 1) * tags + tag] + chain.Last(tag);
  }
  all.log_sum = LogSumExp(terms);
  return all;
}

// Lengths of the sequences, of 1 to `steps`.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const Tensor& lengths, int64_t steps) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> all, ReadIndices("Length", lengths, steps + 1));
  for (int64_t length : all) {
    if (length == 0) return absl::InvalidArgumentError("input Length: 0 is not in [1, steps]");
  }
  return all;
}

// The labels of all sequences, each of `steps`; 0 in the padding, whatever it has.
absl::StatusOr<std::vector<int64_t>> ReadLabels(const KernelContext& ctx, const In& label,
                                                const In& length, int64_t steps, int64_t tags) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, ReadLengths(length(ctx), steps));
  std::vector<int64_t> labels(label(ctx).size());
  WEFT_RETURN_IF_ERROR((ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
    std::copy_n(label.data<typename decltype(tag)::type>(ctx), labels.size(), labels.data());
    return absl::OkStatus();
  })));
  for (size_t i = 0; i < labels.size(); ++i) {
    const int64_t n = static_cast<int64_t>(i) / steps, step = static_cast<int64_t>(i) % steps;
    if (step >= lengths[n]) labels[i] = 0;
    if (labels[i] >= 0 && labels[i] < tags) continue;
    return absl::InvalidArgumentError(absl::StrCat("input Label: ", labels[i], " at step ", step,
                                                   " of sequence ", n, " is not in [0, ", tags,
                                                   ")"));
  }
  return labels;
}

absl::Status NeedsLengths() {
  return absl::UnimplementedError(
      "input Length: no kernel for sequences without it, of level-of-detail offsets");
}

// Calls visit(n, chain, labels, length) for each sequence.
template <typename T, typename Visit>
absl::Status ForEachChain(const KernelContext& ctx, const In& emission, const In& transition,
                          const In& length, Visit visit) {
  const int64_t sequences = emission(ctx).dim(0), steps = emission(ctx).dim(1);
  const int64_t tags = emission(ctx).dim(2);
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, ReadLengths(length(ctx), steps));
  for (int64_t n = 0; n < sequences; ++n) {
    visit(n, Chain<T>{emission.data<T>(ctx) + n * steps * tags, transition.data<T>(ctx), tags},
          lengths[n]);
  }
  return absl::OkStatus();
}

// LogLikelihood: minus the logarithm of the probability of the labels. Of the other outputs, which
// the gradient op of Weft does not read, Alpha has the forward messages, normalized for each step.
absl::StatusOr<Kernel> LinearChainCrf(OpKernel op) {
  const In emission = op.in("Emission"), label = op.in("Label"), transition = op.in("Transition");
  const In length = op.in("Length");
  const Out alpha = op.out("Alpha"), emission_exps = op.out("EmissionExps");
  const Out transition_exps = op.out("TransitionExps"), out = op.out("LogLikelihood");
  if (!length) return NeedsLengths();
  return op.Make(Floats(emission), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t steps = emission(ctx).dim(1), tags = emission(ctx).dim(2);
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> labels,
                          ReadLabels(ctx, label, length, steps, tags));
    const auto exps = [&](const In& from, const Out& to) {
      T* const elements = to.data_or_null<T>(ctx);
      for (int64_t i = 0; elements != nullptr && i < from(ctx).size(); ++i) {
        elements[i] = std::exp(from.data<T>(ctx)[i]);
      }
    };
    exps(emission, emission_exps);
    exps(transition, transition_exps);
    T* const alphas = alpha.data_or_null<T>(ctx);
    if (alphas != nullptr) std::fill_n(alphas, alpha(ctx).size(), T(0));
    return ForEachChain<T>(
        ctx, emission, transition, length, [&](int64_t n, const Chain<T>& chain, int64_t size) {
          const Messages messages = PassMessages(chain, size);
          const int64_t* const tag = labels.data() + n * steps;
          double score = chain.First(tag[0]) + chain.Last(tag[size - 1]);
          for (int64_t step = 0; step < size; ++step) {
            score += chain.Emission(step, tag[step]);
            if (step > 0) score += chain.Move(tag[step - 1], tag[step]);
          }
          if (T* to = out.data_or_null<T>(ctx)) to[n] = static_cast<T>(messages.log_sum - score);
          for (int64_t step = 0; alphas != nullptr && step < size; ++step) {
            const std::vector<double> of_step(messages.forward.begin() + step * tags,
                                              messages.forward.begin() + (step + 1) * tags);
            const double sum = LogSumExp(of_step);
            for (int64_t k = 0; k < tags; ++k) {
              alphas[(n * steps + step) * tags + k] = static_cast<T>(std::exp(of_step[k] - sum));
            }
          }
        });
  });
}

// The probabilities of tags and of moves, minus those of the labels, which are 0 and 1.
absl::StatusOr<Kernel> LinearChainCrfGrad(OpKernel op) {
  op.Ignore({"Alpha", "EmissionExps", "TransitionExps"});
  const In emission = op.in("Emission"), label = op.in("Label"), transition = op.in("Transition");
  const In length = op.in("Length"), dout = op.in("LogLikelihood@GRAD");
  const Out demission = op.out("Emission@GRAD"), dtransition = op.out("Transition@GRAD");
  if (!length) return NeedsLengths();
  return op.Make(Floats(emission), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t steps = emission(ctx).dim(1), tags = emission(ctx).dim(2);
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> labels,
                          ReadLabels(ctx, label, length, steps, tags));
    T* const to = demission.data_or_null<T>(ctx);
    if (to != nullptr) std::fill_n(to, demission(ctx).size(), T(0));
    std::vector<double> sums(transition(ctx).size());
    const auto add = [&](int64_t row, int64_t column, double value) {
      sums[row * tags + column] += value;
    };
    WEFT_RETURN_IF_ERROR(ForEachChain<T>(
        ctx, emission, transition, length, [&](int64_t n, const Chain<T>& chain, int64_t size) {
          const Messages all = PassMessages(chain, size);
          const int64_t* const tag = labels.data() + n * steps;
          const double d = dout.data<T>(ctx)[n];
          for (int64_t step = 0; step < size; ++step) {
            for (int64_t k = 0; k < tags; ++k) {
              const int64_t at = step * tags + k;
              const double p = std::exp(all.forward[at] + all.backward[at] - all.log_sum);
              const double gradient = d * (p - (tag[step] == k ? 1 : 0));
              if (to != nullptr) to[n * steps * tags + at] = static_cast<T>(gradient);
              if (step == 0) add(0, k, gradient);
              if (step == size - 1) add(1, k, gradient);
              for (int64_t from = 0; step > 0 && from < tags; ++from) {
                const double move =
                    std::exp(all.forward[(step - 1) * tags + from] + chain.Move(from, k) +
                             chain.Emission(step, k) + all.backward[at] - all.log_sum);
                const bool is_label = tag[step - 1] == from && tag[step] == k;
                add(2 + from, k, d * (move - (is_label ? 1 : 0)));
              }
            }
          }
        }));
    T* const transition_to = dtransition.data_or_null<T>(ctx);
    for (size_t i = 0; transition_to != nullptr && i < sums.size(); ++i) {
      transition_to[i] = static_cast<T>(sums[i]);
    }
    return absl::OkStatus();
  });
}

// ViterbiPath: the most probable tags, and 0 after the end; with a Label, whether they are it.
absl::StatusOr<Kernel> CrfDecoding(OpKernel op) {
  const In emission = op.in("Emission"), transition = op.in("Transition");
  const In label = op.in("Label"), length = op.in("Length");
  const Out out = op.out("ViterbiPath");
  if (!length) return NeedsLengths();
  return op.Make(Floats(emission), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t steps = emission(ctx).dim(1), tags = emission(ctx).dim(2);
    std::vector<int64_t> labels;
    if (label) {
      WEFT_ASSIGN_OR_RETURN(labels, ReadLabels(ctx, label, length, steps, tags));
    }
    int64_t* const to = out.data<int64_t>(ctx);
    std::fill_n(to, out(ctx).size(), 0);
    return ForEachChain<T>(
        ctx, emission, transition, length, [&](int64_t n, const Chain<T>& chain, int64_t size) {
          std::vector<double> best(size * tags);
          std::vector<int64_t> from(size * tags);
          for (int64_t step = 0; step < size; ++step) {
            for (int64_t k = 0; k < tags; ++k) {
              const int64_t at = step * tags + k;
              best[at] = chain.First(k);
              for (int64_t j = 0; step > 0 && j < tags; ++j) {
                const double score = best[(step - 1) * tags + j] + chain.Move(j, k);
                if (j > 0 && !(score > best[at])) continue;
                best[at] = score;
                from[at] = j;
              }
              best[at] += chain.Emission(step, k);
            }
          }
          int64_t tag = 0;
          const double* const last = best.data() + (size - 1) * tags;
          for (int64_t k = 1; k < tags; ++k) {
            if (last[k] + chain.Last(k) > last[tag] + chain.Last(tag)) tag = k;
          }
          for (int64_t step = size - 1; step >= 0; --step) {
            const int64_t at = n * steps + step;
            to[at] = labels.empty() ? tag : (labels[at] == tag ? 1 : 0);
            tag = from[step * tags + tag];
          }
        });
  });
}

// --- expand_as -----------------------------------------------------------------------------------

// Calls visit(index in Out, index in X) for X repeated as a whole along each dimension.
template <typename Visit>
void ForEachRepeated(const Dims& x, const Dims& out, Visit visit) {
  for (int64_t i = 0; i < NumElements(out); ++i) {
    int64_t rest = i, from = 0, stride = 1;
    for (size_t d = out.size(); d-- > 0;) {
      from += rest % out[d] % x[d] * stride;
      rest /= out[d];
      stride *= x[d];
    }
    visit(i, from);
  }
}

absl::StatusOr<Kernel> ExpandAs(OpKernel op) {
  op.Ignore({"target_tensor"});
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ForEachRepeated(x(ctx).dims(), out(ctx).dims(), [&](int64_t to, int64_t from) {
      out.elements<T>(ctx)[to] = x.elements<T>(ctx)[from];
    });
  });
}

absl::StatusOr<Kernel> ExpandAsGrad(OpKernel op) {
  op.Ignore({"X", "target_tensor"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T* const to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachRepeated(dx(ctx).dims(), dout(ctx).dims(),
                    [&](int64_t from, int64_t at) { to[at] += dout.data<T>(ctx)[from]; });
  });
}

// --- pad2d ---------------------------------------------------------------------------------------

// The place in a row of `size` elements from which a padded one comes; -1: from none.
int64_t Unpadded(const std::string& mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  if (mode == "constant") return -1;
  if (mode == "edge") return at < 0 ? 0 : size - 1;
  return at < 0 ? -at : 2 * size - 2 - at;
}

// Calls visit(index in Out, index in X or -1) for all elements of Out.
template <typename Visit>
void ForEachPadded(const OpAttrs& attrs, const Dims& x, const Dims& out, Visit visit) {
  const std::string& mode = attrs.String("mode");
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  const size_t first = attrs.String("data_format") == "NHWC" ? 1 : 2;
  const int64_t planes = CountBefore(out, first), channels = CountAfter(out, first + 1);
  const int64_t height = x[first], width = x[first + 1];
  int64_t to = 0;
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t i = 0; i < out[first]; ++i) {
      const int64_t row = Unpadded(mode, i - paddings[0], height);
      for (int64_t j = 0; j < out[first + 1]; ++j) {
        const int64_t column = Unpadded(mode, j - paddings[2], width);
        const bool is_padding = row < 0 || column < 0;
        const int64_t from = ((plane * height + row) * width + column) * channels;
        for (int64_t c = 0; c < channels; ++c) visit(to++, is_padding ? -1 : from + c);
      }
    }
  }
}

absl::StatusOr<Kernel> Pad2d(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = op.attrs().Float("pad_value");
  return op.Make(FloatsAndInts(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ForEachPadded(attrs, x(ctx).dims(), out(ctx).dims(), [&](int64_t to, int64_t from) {
      out.data<T>(ctx)[to] = from < 0 ? static_cast<T>(value) : x.data<T>(ctx)[from];
    });
  });
}

absl::StatusOr<Kernel> Pad2dGrad(OpKernel op) {
  op.Ignore({"X"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T* const to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachPadded(attrs, dx(ctx).dims(), dout(ctx).dims(), [&](int64_t from, int64_t at) {
      if (at >= 0) to[at] += dout.data<T>(ctx)[from];
    });
  });
}

// --- soft_relu -----------------------------------------------------------------------------------

// Out = log(1 + exp(X)), with X clipped to the threshold.
absl::StatusOr<Kernel> SoftRelu(OpKernel op) {
  const In x = op.in("X");
  const double threshold = op.attrs().Float("threshold");
  return op.MakeElementwise(
      Floats(x), op.out("Out"),
      [=](double x) { return SoftPlus(std::clamp(x, -threshold, threshold)); }, x);
}

absl::StatusOr<Kernel> SoftReluGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const double threshold = op.attrs().Float("threshold");
  return op.MakeElementwise(
      Floats(out), op.out("X@GRAD"),
      [=](double out, double dout) {
        return out > -threshold && out < threshold ? -dout * std::expm1(-out) : 0;
      },
      out, dout);
}

// Out = the matrix with this diagonal, and zeros elsewhere.
absl::StatusOr<Kernel> Diag(OpKernel op) {
  const In x = op.in("Diagonal");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t size = x(ctx).dim(0);
    T* const to = out.elements<T>(ctx);
    std::fill_n(to, size * size, T(0));
    for (int64_t i = 0; i < size; ++i) to[i * (size + 1)] = x.elements<T>(ctx)[i];
  });
}

// --- mean_iou ------------------------------------------------------------------------------------

// Of each class, OutCorrect counts elements that Predictions and Labels both have, and OutWrong
// those that one of them has; OutMeanIou: the mean of correct / (correct + wrong) over the classes
// that occur.
absl::StatusOr<Kernel> MeanIou(OpKernel op) {
  const In predictions = op.in("Predictions"), labels = op.in("Labels");
  const In wrongs = op.in("InWrongs"), corrects = op.in("InCorrects"), means = op.in("InMeanIou");
  const Out mean = op.out("OutMeanIou"), wrong = op.out("OutWrong"), right = op.out("OutCorrect");
  const int64_t classes = op.attrs().Int("num_classes");
  return op.Make(Indices(predictions), [=](const KernelContext& ctx, auto) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> found,
                          ReadIndices("Predictions", predictions(ctx), classes));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> expected,
                          ReadIndices("Labels", labels(ctx), classes));
    WEFT_RETURN_IF_ERROR(CheckSize("Labels", labels(ctx), predictions(ctx).size()));
    std::vector<int32_t> num_right(classes), num_wrong(classes);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] == expected[i]) {
        ++num_right[found[i]];
      } else {
        ++num_wrong[found[i]];
        ++num_wrong[expected[i]];
      }
    }
    const auto add = [&](const In& earlier, std::vector<int32_t>* counts) {
      for (int k = 0; k < earlier.count(); ++k) {
        for (int64_t c = 0; c < classes; ++c) (*counts)[c] += earlier.data<int32_t>(ctx, k)[c];
      }
    };
    add(corrects, &num_right);
    add(wrongs, &num_wrong);
    double sum = 0;
    int64_t occurring = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const int32_t all = num_right[c] + num_wrong[c];
      if (all == 0) continue;
      sum += static_cast<double>(num_right[c]) / all;
      ++occurring;
    }
    double result = occurring == 0 ? 0 : sum / static_cast<double>(occurring);
    for (int k = 0; k < means.count(); ++k) result += means.data<float>(ctx, k)[0];
    if (float* to = mean.data_or_null<float>(ctx)) to[0] = static_cast<float>(result);
    if (int32_t* to = right.data_or_null<int32_t>(ctx)) absl::c_copy(num_right, to);
    if (int32_t* to = wrong.data_or_null<int32_t>(ctx)) absl::c_copy(num_wrong, to);
    return absl::OkStatus();
  });
}

}  // namespace

void AddPaddle1Kernels(KernelTable* table) {
  table->Add("pad2d", Pad2d, Pad2dGrad);
  table->Add("soft_relu", SoftRelu, SoftReluGrad);
  table->Add("diag", Diag);
  table->Add("mean_iou", MeanIou);
  table->Add("smooth_l1_loss", SmoothL1Loss, SmoothL1LossGrad);
  table->Add("margin_rank_loss", MarginRankLoss, MarginRankLossGrad);
  table->Add("bpr_loss", BprLoss, BprLossGrad);
  table->Add("teacher_student_sigmoid_loss", TeacherStudent, TeacherStudentGrad);
  table->Add("cos_sim", CosSim, CosSimGrad);
  table->Add("lstm_unit", LstmUnit, LstmUnitGrad);
  table->Add("gru_unit", GruUnit, GruUnitGrad);
  table->Add("linear_chain_crf", LinearChainCrf, LinearChainCrfGrad);
  table->Add("crf_decoding", CrfDecoding);
  table->Add("expand_as", ExpandAs, ExpandAsGrad);
}

}  // namespace weft
