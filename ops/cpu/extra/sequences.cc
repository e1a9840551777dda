// Losses and convolutions of sequences over time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Connectionist temporal classification (op warpctc): the probability that a sequence of classes,
// one per time step, becomes a label after removing repetitions and blanks. From A. Graves et al.,
// "Connectionist Temporal Classification" (2006).

constexpr double kLogZero = -std::numeric_limits<double>::infinity();

double LogAdd(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kLogZero ? a : a + std::log1p(std::exp(b - a));
}

// One length per sequence, up to `longest`.
absl::StatusOr<std::vector<int64_t>> ReadLengths(absl::string_view slot, const Tensor& tensor,
                                                 int64_t count, int64_t longest) {
  WEFT_RETURN_IF_ERROR(CheckSize(slot, tensor, count));
  return ReadIndices(slot, tensor, longest + 1);
}

// One sequence: log probabilities of the classes at each time step, and the label with blanks
// around its classes.
struct Sequence {
  int64_t time, classes;
  std::vector<double> log_p;      // [time, classes]
  std::vector<int32_t> extended;  // blank, l0, blank, l1, ..., blank

  double At(int64_t t, size_t s) const { return log_p[t * classes + extended[s]]; }
  // Whether a path may skip from s - 2 to s: neither to a blank, nor between equal classes.
  bool MaySkip(size_t s, int32_t blank) const {
    return s >= 2 && extended[s] != blank && extended[s] != extended[s - 2];
  }

  // Returns the negative log probability of the label; `grad` is its derivative by the logits. Both
  // are 0 if the sequence is too short for the label, as in warp-ctc.
  double Loss(int32_t blank, std::vector<double>* grad) const {
    const size_t states = extended.size();
    std::vector<double> alpha(time * states, kLogZero), beta(time * states, kLogZero);
    grad->assign(time * classes, 0);
    if (time == 0) return 0;
    for (size_t s = 0; s < std::min<size_t>(2, states); ++s) alpha[s] = At(0, s);
    for (int64_t t = 1; t < time; ++t) {
      const double* before = alpha.data() + (t - 1) * states;
      for (size_t s = 0; s < states; ++s) {
        double sum = before[s];
        if (s >= 1) sum = LogAdd(sum, before[s - 1]);
        if (MaySkip(s, blank)) sum = LogAdd(sum, before[s - 2]);
        alpha[t * states + s] = sum + At(t, s);
      }
    }
    // The backward variable at time t: log probabilities of the steps after t.
    for (size_t s = states - std::min<size_t>(2, states); s < states; ++s) {
      beta[(time - 1) * states + s] = 0;
    }
    for (int64_t t = time - 2; t >= 0; --t) {
      const double* after = beta.data() + (t + 1) * states;
      for (size_t s = 0; s < states; ++s) {
        double sum = after[s] + At(t + 1, s);
        if (s + 1 < states) sum = LogAdd(sum, after[s + 1] + At(t + 1, s + 1));
        if (s + 2 < states && MaySkip(s + 2, blank)) {
          sum = LogAdd(sum, after[s + 2] + At(t + 1, s + 2));
        }
        beta[t * states + s] = sum;
      }
    }
    double total = kLogZero;
    for (size_t s = 0; s < states; ++s) total = LogAdd(total, alpha[s] + beta[s]);
    if (total == kLogZero) return 0;
    for (int64_t t = 0; t < time; ++t) {
      double* to = grad->data() + t * classes;
      for (int64_t c = 0; c < classes; ++c) to[c] = std::exp(log_p[t * classes + c]);
      for (size_t s = 0; s < states; ++s) {
        const size_t i = t * states + s;
        to[extended[s]] -= std::exp(alpha[i] + beta[i] - total);
      }
    }
    return -total;
  }
};

template <typename T>
Sequence ReadSequence(const Tensor& logits, int64_t b, int64_t time, const int32_t* label,
                      int64_t length, int32_t blank) {
  const int64_t batch = logits.dim(1), classes = logits.dim(2);
  Sequence sequence{time, classes, std::vector<double>(time * classes), {blank}};
  for (int64_t t = 0; t < time; ++t) {
    const T* from = logits.data<T>() + (t * batch + b) * classes;
    const double largest = *std::max_element(from, from + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(from[c] - largest);
    double* to = sequence.log_p.data() + t * classes;
    for (int64_t c = 0; c < classes; ++c) to[c] = from[c] - largest - std::log(sum);
  }
  for (int64_t i = 0; i < length; ++i) {
    sequence.extended.push_back(label[i]);
    sequence.extended.push_back(blank);
  }
  return sequence;
}

// Loss = the negative log probabilities of the labels; WarpCTCGrad = their derivatives by Logits.
absl::StatusOr<Kernel> WarpCtc(OpKernel op) {
  const In logits = op.in("Logits"), label = op.in("Label");
  const In logits_length = op.in("LogitsLength"), label_length = op.in("LabelLength");
  const Out loss = op.out("Loss"), grad = op.out("WarpCTCGrad");
  if (!logits_length || !label_length) {
    return absl::UnimplementedError("no kernel for sequences that their LoD splits");
  }
  const auto blank = static_cast<int32_t>(op.attrs().Int("blank"));
  return op.Make(Floats(logits), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t time = logits(ctx).dim(0), batch = logits(ctx).dim(1),
                  classes = logits(ctx).dim(2), width = label(ctx).dim(1);
    WEFT_RETURN_IF_ERROR(CheckDType("Label", label(ctx), DType::kInt32));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> times,
                          ReadLengths("LogitsLength", logits_length(ctx), batch, time));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths,
                          ReadLengths("LabelLength", label_length(ctx), batch, width));
    T* derivatives = nullptr;
    if (Tensor* to = grad.get(ctx)) {
      to->Resize(logits(ctx).dtype(), logits(ctx).dims());
      derivatives = to->data<T>();
      std::fill_n(derivatives, to->size(), T(0));
    }
    std::vector<double> of_sequence;
    for (int64_t b = 0; b < batch; ++b) {
      const int32_t* labels = label.data<int32_t>(ctx) + b * width;
      for (int64_t i = 0; i < lengths[b]; ++i) {
        if (labels[i] >= 0 && labels[i] < classes) continue;
        return absl::InvalidArgumentError(absl::StrCat("input Label: ", labels[i], " of sequence ",
                                                       b, " is not in [0, ", classes, ")"));
      }
      const Sequence sequence =
          ReadSequence<T>(logits(ctx), b, times[b], labels, lengths[b], blank);
      loss.data<T>(ctx)[b] = static_cast<T>(sequence.Loss(blank, &of_sequence));
      for (int64_t t = 0; derivatives != nullptr && t < times[b]; ++t) {
        std::copy_n(of_sequence.data() + t * classes, classes,
                    derivatives + (t * batch + b) * classes);
      }
    }
    return absl::OkStatus();
  });
}

// Logits@GRAD = WarpCTCGrad times Loss@GRAD of the sequence; with norm_by_times, divided by its
// length.
absl::StatusOr<Kernel> WarpCtcGrad(OpKernel op) {
  op.Ignore({"Logits"});
  const In kept = op.in("WarpCTCGrad"), dloss = op.in("Loss@GRAD");
  const In length = op.in("LogitsLength");
  const Out dlogits = op.out("Logits@GRAD");
  const bool by_times = op.attrs().Bool("norm_by_times");
  if (by_times && !length) return absl::InvalidArgumentError("input LogitsLength: missing");
  return op.Make(Floats(dloss), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dlogits(ctx).dims();
    if (dims.size() != 3) {
      return absl::InvalidArgumentError("input Logits: expected three dimensions");
    }
    WEFT_RETURN_IF_ERROR(CheckSize("Loss@GRAD", dloss(ctx), dims[1]));
    WEFT_RETURN_IF_ERROR(CheckSize("WarpCTCGrad", kept(ctx), dlogits(ctx).size()));
    std::vector<double> factors(dloss.data<T>(ctx), dloss.data<T>(ctx) + dims[1]);
    if (by_times) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> times,
                            ReadLengths("LogitsLength", length(ctx), dims[1], dims[0]));
      for (int64_t b = 0; b < dims[1]; ++b) {
        factors[b] /= static_cast<double>(std::max<int64_t>(times[b], 1));
      }
    }
    for (int64_t i = 0; i < dlogits(ctx).size(); ++i) {
      dlogits.data<T>(ctx)[i] =
          static_cast<T>(kept.data<T>(ctx)[i] * factors[i / dims[2] % dims[1]]);
    }
    return absl::OkStatus();
  });
}

// Lookahead convolution over time, separate for each feature: for X, [batch, time, features],
// Out[n, t] = Σ_w Filter[w] X[n, t + w], within the time steps

// Calls visit(out, in, filter) with the matching positions of rows of Out, X and Filter.
template <typename Visit>
void ForEachProduct(const Dims& x, int64_t ahead, Visit visit) {
  const int64_t time = x[1], width = x[2];
  for (int64_t n = 0; n < x[0]; ++n) {
    for (int64_t t = 0; t < time; ++t) {
      for (int64_t w = 0; w < std::min(ahead, time - t); ++w) {
        visit((n * time + t) * width, (n * time + t + w) * width, w * width);
      }
    }
  }
}

// to += a b
template <typename T>
void AddProduct(int64_t width, const T* a, const T* b, T* to) {
  for (int64_t k = 0; k < width; ++k) to[k] += a[k] * b[k];
}

absl::Status CheckIsPadded(const Tensor& x) {
  if (x.rank() == 3) return absl::OkStatus();
  return absl::UnimplementedError("input X: no kernel for level-of-detail offsets");
}

absl::StatusOr<Kernel> RowConv(OpKernel op) {
  const In x = op.in("X"), filter = op.in("Filter");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckIsPadded(x(ctx)));
    const Dims& dims = x(ctx).dims();
    const T *from = x.data<T>(ctx), *weights = filter.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    ForEachProduct(dims, filter(ctx).dim(0), [&](int64_t o, int64_t i, int64_t w) {
      AddProduct(dims[2], from + i, weights + w, to + o);
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> RowConvGrad(OpKernel op) {
  const In x = op.in("X"), filter = op.in("Filter"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dfilter = op.out("Filter@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckIsPadded(x(ctx)));
    const Dims& dims = x(ctx).dims();
    const T *from = x.data<T>(ctx), *weights = filter.data<T>(ctx), *douts = dout.data<T>(ctx);
    T *dxs = dx.data_or_null<T>(ctx), *dweights = dfilter.data_or_null<T>(ctx);
    if (dxs != nullptr) std::fill_n(dxs, dx(ctx).size(), T(0));
    if (dweights != nullptr) std::fill_n(dweights, dfilter(ctx).size(), T(0));
    ForEachProduct(dims, filter(ctx).dim(0), [&](int64_t o, int64_t i, int64_t w) {
      if (dxs != nullptr) AddProduct(dims[2], douts + o, weights + w, dxs + i);
      if (dweights != nullptr) AddProduct(dims[2], douts + o, from + i, dweights + w);
    });
    return absl::OkStatus();
  });
}

}  // namespace

void AddSequenceKernels(KernelTable* table) {
  table->Add("warpctc", WarpCtc);
  table->Add("warpctc_grad", WarpCtcGrad);
  table->Add("row_conv", RowConv);
  table->Add("row_conv_grad", RowConvGrad);
}

}  // namespace weft
