// Activations across channels, and with random draws, which every rank makes separately.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/status_macros.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/cpu/random_engine.h"
#include "ops/cpu/softmax_row.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

struct Lrn {
  int64_t n;
  double k, alpha, beta;
  bool channels_last;

  static absl::StatusOr<Lrn> Read(const OpAttrs& attrs) {
    Lrn lrn{attrs.Int("n"), attrs.Float("k"), attrs.Float("alpha"), attrs.Float("beta"), false};
    WEFT_ASSIGN_OR_RETURN(lrn.channels_last, ReadChannelsLast(attrs, 2));
    return lrn;
  }

  // Calls visit(i, begin, end, step) for every element i of X: its neighbors are begin, begin +
  // step, ..., up to but excluding end.
  template <typename Visit>
  void ForEachElement(const Dims& x, Visit visit) const {
    const Dims dims = ChannelsFirst(x, channels_last);
    const auto steps = ImageSteps(dims, channels_last);
    const int64_t places = dims[2] * dims[3], step = steps[1];
    for (int64_t image = 0; image < dims[0]; ++image) {
      for (int64_t place = 0; place < places; ++place) {
        const int64_t first = image * steps[0] + place * steps[4];
        for (int64_t c = 0; c < dims[1]; ++c) {
          const int64_t begin = std::max<int64_t>(c - (n - 1) / 2, 0);
          const int64_t end = std::min(c - (n - 1) / 2 + n, dims[1]);
          visit(first + c * step, first + begin * step, first + end * step, step);
        }
      }
    }
  }
};

absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out"), mid_out = op.out("MidOut");
  WEFT_ASSIGN_OR_RETURN(const Lrn lrn, Lrn::Read(op.attrs()));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    T *outs = out.data<T>(ctx), *mids = mid_out.data<T>(ctx);
    lrn.ForEachElement(x(ctx).dims(), [&](int64_t i, int64_t begin, int64_t end, int64_t step) {
      double squares = 0;
      for (int64_t j = begin; j < end; j += step) squares += double{xs[j]} * xs[j];
      const double mid = lrn.k + lrn.alpha * squares;
      mids[i] = static_cast<T>(mid);
      outs[i] = static_cast<T>(xs[i] * std::pow(mid, -lrn.beta));
    });
  });
}

// dX = dOut MidOut^-beta - 2 alpha beta X Σ dOut Out / MidOut, over the elements that X is a
// neighbor of.
absl::StatusOr<Kernel> Backward(OpKernel op) {
  const In x = op.in("X"), out = op.in("Out"), mid_out = op.in("MidOut");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  WEFT_ASSIGN_OR_RETURN(const Lrn lrn, Lrn::Read(op.attrs()));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *outs = out.data<T>(ctx), *mids = mid_out.data<T>(ctx);
    const T* d = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    lrn.ForEachElement(x(ctx).dims(), [&](int64_t i, int64_t begin, int64_t end, int64_t step) {
      to[i] += static_cast<T>(d[i] * std::pow(double{mids[i]}, -lrn.beta));
      const double factor = 2 * lrn.alpha * lrn.beta * d[i] * outs[i] / mids[i];
      for (int64_t j = begin; j < end; j += step) to[j] -= static_cast<T>(factor * xs[j]);
    });
  });
}

// Calls visit(index in Out, first index in X, step) for every group of `groups` channels of X.
template <typename Visit>
void ForEachGroup(const Dims& out_dims, int64_t axis, int64_t groups, Visit visit) {
  const AxisRows rows = RowsAlong(out_dims, axis);
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t inner = r % rows.stride, outer = r / rows.stride;
    for (int64_t c = 0; c < rows.length; ++c) {
      const int64_t channel = outer * rows.length + c;
      visit(channel * rows.stride + inner, channel * groups * rows.stride + inner, rows.stride);
    }
  }
}

// Out = the maximum of each group of channels.
absl::StatusOr<Kernel> Maxout(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis"), groups = op.attrs().Int("groups");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    ForEachGroup(out(ctx).dims(), axis, groups, [&](int64_t place, int64_t first, int64_t step) {
      T largest = xs[first];
      for (int64_t k = 1; k < groups; ++k) largest = std::max(largest, xs[first + k * step]);
      out.data<T>(ctx)[place] = largest;
    });
  });
}

// X@GRAD = Out@GRAD at the first maximum of a group, 0 elsewhere.
absl::StatusOr<Kernel> MaxoutGrad(OpKernel op) {
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = op.attrs().Int("axis"), groups = op.attrs().Int("groups");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachGroup(out(ctx).dims(), axis, groups, [&](int64_t place, int64_t first, int64_t step) {
      for (int64_t k = 0; k < groups; ++k) {
        if (xs[first + k * step] != out.data<T>(ctx)[place]) continue;
        to[first + k * step] = dout.data<T>(ctx)[place];
        break;
      }
    });
  });
}

struct GumbelAttrs {
  int64_t axis;
  double temperature;

  explicit GumbelAttrs(const OpAttrs& attrs)
      : axis(attrs.Int("axis")), temperature(attrs.Float("temperature")) {}

  absl::StatusOr<AxisRows> RowsOf(const Dims& dims) const {
    return dims.empty() ? AxisRows::Along(0, {1}) : AxisRows::Along(axis, dims);
  }
};

// Out = softmax((X - log(-log U)) / temperature) with U drawn from (0, 1); if hard, 1 for the most
// probable class, else 0.
absl::StatusOr<Kernel> GumbelSoftmax(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const GumbelAttrs attrs(op.attrs());
  const bool hard = op.attrs().Bool("hard");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(/*seed=*/0, &RandomState::noise, ctx.random, &own));
    WEFT_ASSIGN_OR_RETURN(const AxisRows rows, attrs.RowsOf(x(ctx).dims()));
    std::uniform_real_distribution<double> draw(std::numeric_limits<double>::min(), 1);
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const double gumbel = -std::log(-std::log(draw(*engine)));
      to[i] = static_cast<T>((x.data<T>(ctx)[i] + gumbel) / attrs.temperature);
    }
    for (int64_t r = 0; r < rows.count(); ++r) {
      T* row = to + rows.Start(r);
      SoftmaxRow(row, rows.length, rows.stride, row);
      if (!hard || rows.length == 0) continue;
      int64_t best = 0;
      for (int64_t k = 1; k < rows.length; ++k) {
        if (row[k * rows.stride] > row[best * rows.stride]) best = k;
      }
      for (int64_t k = 0; k < rows.length; ++k) row[k * rows.stride] = k == best ? T(1) : T(0);
    }
    return absl::OkStatus();
  });
}

// X@GRAD = Out (Out@GRAD - Σ Out Out@GRAD) / temperature: 0 if hard. Paddle's CPU kernel does not
// divide by the temperature.
absl::StatusOr<Kernel> GumbelSoftmaxGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const GumbelAttrs attrs(op.attrs());
  const double divisor = op.spec().paddle_cpu_quirks ? 1 : attrs.temperature;
  return op.InPlace().Make(Floats(out), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const AxisRows rows, attrs.RowsOf(out(ctx).dims()));
    const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
      double dot = 0;
      for (int64_t i = start; i < end; i += rows.stride) dot += double{ys[i]} * dys[i];
      for (int64_t i = start; i < end; i += rows.stride) {
        dx.data<T>(ctx)[i] = static_cast<T>(ys[i] * (dys[i] - dot) / divisor);
      }
    }
    return absl::OkStatus();
  });
}

// Out = X Noise: 1 where X >= 0, else drawn from [lower, upper), in a test the middle of that.
absl::StatusOr<Kernel> Rrelu(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out"), noise = op.out("Noise");
  const double lower = op.attrs().Float("lower"), upper = op.attrs().Float("upper");
  const bool is_test = op.attrs().Bool("is_test");
  return op.InPlace(out, x).Make(
      Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        std::mt19937_64 unused, *engine = &unused;
        if (!is_test) {
          WEFT_ASSIGN_OR_RETURN(engine,
                                EngineOf(/*seed=*/0, &RandomState::noise, ctx.random, &unused));
        }
        std::uniform_real_distribution<double> draw(lower, upper);
        const T* from = x.data<T>(ctx);
        T *to = out.data<T>(ctx), *factors = noise.data_or_null<T>(ctx);
        for (int64_t i = 0; i < x(ctx).size(); ++i) {
          const double slope = from[i] >= 0 ? 1 : is_test ? (lower + upper) / 2 : draw(*engine);
          to[i] = static_cast<T>(from[i] * slope);
          if (factors != nullptr) factors[i] = static_cast<T>(slope);
        }
        return absl::OkStatus();
      });
}

// X@GRAD = Out@GRAD Noise.
absl::StatusOr<Kernel> RreluGrad(OpKernel op) {
  op.Ignore({"X"});
  const In noise = op.in("Noise"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *factors = noise.data<T>(ctx), *from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    for (int64_t i = 0; i < dout(ctx).size(); ++i) to[i] = from[i] * factors[i];
  });
}

}  // namespace

void AddExtraActivationKernels(KernelTable* table) {
  table->Add("lrn", Forward);
  table->Add("lrn_grad", Backward);
  table->Add("maxout", Maxout);
  table->Add("maxout_grad", MaxoutGrad);
  table->Add("gumbel_softmax", GumbelSoftmax);
  table->Add("gumbel_softmax_grad", GumbelSoftmaxGrad);
  table->Add("rrelu", Rrelu);
  table->Add("rrelu_grad", RreluGrad);
}

}  // namespace weft
