// Normalization: y = scale (x - mean) / √(variance + epsilon) + bias, with a mean and a variance
// per set of elements, and a scale and a bias per channel. Ops differ in the definition of sets and
// channels.
//
// With x̂ = (y - bias) / scale and g = scale dy, over the n elements of a set
//   dx = (g - Σg / n - x̂ Σ(g x̂) / n) / √(variance + epsilon)
// if the mean and the variance come from x, and dx = g / √(variance + epsilon) if they do not. Over
// the elements of a channel, dscale = Σ(dy x̂) and dbias = Σdy.
//
// The loops below are in double precision. Those here and in batch_norm.cc run on the threads of
// the rank (ops/threads.h), with the same results for any number of them.
#ifndef WEFT_OPS_CPU_NORMALIZE_H_
#define WEFT_OPS_CPU_NORMALIZE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ops/op_kernel.h"
#include "ops/threads.h"
#include "ops/vectorize.h"

namespace weft {

// The type of parameters and factors for elements of type T.
template <typename T>
using ParameterOf = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

// X as an array of four dimensions, of which the last is a run. The index of an element's set is
// the sum of its positions times set_step; likewise for its channel. The elements of a run are of
// one set, and of one channel or of successive ones: its steps are 0, and 0 or 1.
struct Grouping {
  std::array<int64_t, 4> size, set_step, channel_step;

  int64_t num_elements() const { return num_runs() * size[3]; }
  int64_t num_runs() const { return size[0] * size[1] * size[2]; }
  int64_t num_sets() const { return Count(set_step); }
  int64_t num_channels() const { return Count(channel_step); }
  // Elements of a set.
  int64_t set_size() const { return num_sets() == 0 ? 0 : num_elements() / num_sets(); }

 private:
  int64_t Count(const std::array<int64_t, 4>& step) const {
    int64_t count = 1;
    for (int i = 0; i < 4; ++i) count *= step[i] == 0 ? 1 : size[i];
    return count;
  }
};

// The dims of X with one dimension of space.
struct NormImage {
  int64_t batch, channels, space;
  bool channels_last;

  NormImage(const Dims& dims, bool channels_last)
      : batch(dims[0]),
        channels(channels_last ? dims.back() : dims[1]),
        space(1),
        channels_last(channels_last) {
    const size_t first = channels_last ? 1 : 2;
    for (size_t i = 0; i + 2 < dims.size(); ++i) space *= dims[first + i];
  }
};

inline bool ChannelsLast(const KernelSpec& spec) {
  return spec.attrs.String("data_layout") == "NHWC";
}

struct NormRun {
  int64_t index, set, channel, begin;
};

// Calls visit(channel_step, run) for the runs [first, end), in order; the step, along the run, is a
// compile-time constant.
template <typename Visit>
void VisitRuns(const Grouping& g, int64_t first, int64_t end, const Visit& visit) {
  const auto walk = [&](auto channel_step) {
    for (int64_t run = first; run < end; ++run) {
      const int64_t c = run % g.size[2], ab = run / g.size[2];
      const int64_t b = ab % g.size[1], a = ab / g.size[1];
      visit(channel_step,
            NormRun{run, a * g.set_step[0] + b * g.set_step[1] + c * g.set_step[2],
                    a * g.channel_step[0] + b * g.channel_step[1] + c * g.channel_step[2],
                    run * g.size[3]});
    }
  };
  if (g.channel_step[3] == 1) return walk(std::integral_constant<int64_t, 1>());
  walk(std::integral_constant<int64_t, 0>());
}

template <typename Visit>
void ForEachNormRun(const Grouping& g, const Visit& visit) {
  VisitRuns(g, 0, g.num_runs(), visit);
}

// On the threads of the rank, in any order.
template <typename Visit>
void ForEachNormRunOnThreads(const Grouping& g, const Visit& visit) {
  ForEachPartIfLong(g.num_elements(), g.num_runs(), 1,
                    [&](int64_t first, int64_t end) { VisitRuns(g, first, end, visit); });
}

// Buffers of a kernel, so that a step allocates nothing.
struct NormBuffers {
  std::vector<double> run_sums;
  std::vector<double> g, gx;    // Σg and Σ(g x̂), by set
  std::vector<double> dy, dyx;  // Σdy and Σ(dy x̂), by channel
};

// Moments of each set.
struct NormMoments {
  std::vector<double> mean, variance;

  template <typename T>
  void SetTo(const Grouping& g, const T* x, NormBuffers* buffers) {
    const int64_t width = g.size[3];
    const double count = std::max<int64_t>(g.set_size(), 1);
    // of_run(begin, set): the sum over a run.
    const auto average = [&](std::vector<double>* averages, const auto& of_run) {
      std::vector<double>& run_sums = buffers->run_sums;
      run_sums.resize(g.num_runs());
      ForEachNormRunOnThreads(
          g, [&](auto, const NormRun& run) { run_sums[run.index] = of_run(run.begin, run.set); });
      averages->assign(g.num_sets(), 0);
      ForEachNormRun(
          g, [&](auto, const NormRun& run) { (*averages)[run.set] += run_sums[run.index]; });
      for (double& a : *averages) a /= count;
    };
    average(&mean, [&](int64_t begin, int64_t) {
      return SumOf<T>(width, [from = x + begin](int64_t i) { return double{from[i]}; });
    });
    average(&variance, [&](int64_t begin, int64_t set) {
      return SumOf<T>(width, [from = x + begin, center = mean[set]](int64_t i) {
        const double distance = from[i] - center;
        return distance * distance;
      });
    });
  }

  // Moments given as tensors.
  template <typename T>
  void SetTo(const Tensor& given_mean, const Tensor& given_variance) {
    mean.assign(given_mean.data<T>(), given_mean.data<T>() + given_mean.size());
    variance.assign(given_variance.data<T>(), given_variance.data<T>() + given_variance.size());
  }

  // The variance becomes the inverse of the deviation.
  void InvertDeviation(double epsilon) {
    for (double& v : variance) v = 1 / std::sqrt(v + epsilon);
  }
};

template <typename T>
void WriteNumbers(const std::vector<double>& values, Tensor* to) {
  if (to != nullptr) std::copy(values.begin(), values.end(), to->data<T>());
}

// A null scale is 1 everywhere, a null bias 0.
template <typename T>
void Normalize(const Grouping& g, const T* x, const std::vector<double>& mean,
               const std::vector<double>& inverse_deviation, const ParameterOf<T>* scale,
               const ParameterOf<T>* bias, T* y) {
  ForEachNormRunOnThreads(g, [&, width = g.size[3]](auto channel_step, const NormRun& run) {
    const T* const from = x + run.begin;
    T* const to = y + run.begin;
    const double center = mean[run.set], inverse = inverse_deviation[run.set];
    if constexpr (channel_step == 0) {
      const double shift = bias == nullptr ? 0 : bias[run.channel];
      const double factor = inverse * (scale == nullptr ? 1 : scale[run.channel]);
      ForEach<T>(width, [=](int64_t i) { to[i] = T((from[i] - center) * factor + shift); });
    } else {
      ForEach<T>(width, [=, channel = run.channel](int64_t i) {
        const double factor = scale == nullptr ? 1 : scale[channel + i];
        const double shift = bias == nullptr ? 0 : bias[channel + i];
        to[i] = static_cast<T>((from[i] - center) * inverse * factor + shift);
      });
    }
  });
}

enum class MomentsOf { kX, kOther };

// The sums that gradients are made of.
template <typename T>
void SumGradients(const Grouping& g, const T* x, const T* dy, const std::vector<double>& mean,
                  const std::vector<double>& inverse_deviation, const ParameterOf<T>* scale,
                  NormBuffers* buffers) {
  buffers->g.assign(g.num_sets(), 0);
  buffers->gx.assign(g.num_sets(), 0);
  buffers->dy.assign(g.num_channels(), 0);
  buffers->dyx.assign(g.num_channels(), 0);
  double *const g_sums = buffers->g.data(), *const gx_sums = buffers->gx.data();
  double *const dy_sums = buffers->dy.data(), *const dyx_sums = buffers->dyx.data();
  const int64_t width = g.size[3];
  const auto dy_of = [&](const NormRun& run) {
    return [from = dy + run.begin](int64_t i) { return double{from[i]}; };
  };
  const auto dy_x_of = [&](const NormRun& run) {
    return [from = x + run.begin, dfrom = dy + run.begin, center = mean[run.set],
            inverse = inverse_deviation[run.set]](int64_t i) {
      return dfrom[i] * (from[i] - center) * inverse;
    };
  };
  if (g.channel_step[3] == 0) {
    std::vector<double>& run_sums = buffers->run_sums;
    run_sums.resize(2 * g.num_runs());
    ForEachNormRunOnThreads(g, [&](auto, const NormRun& run) {
      run_sums[2 * run.index] = SumOf<T>(width, dy_of(run));
      run_sums[2 * run.index + 1] = SumOf<T>(width, dy_x_of(run));
    });
    ForEachNormRun(g, [&](auto, const NormRun& run) {
      const double sum = run_sums[2 * run.index], sum_x = run_sums[2 * run.index + 1];
      const double factor = scale == nullptr ? 1 : scale[run.channel];
      dy_sums[run.channel] += sum;
      dyx_sums[run.channel] += sum_x;
      g_sums[run.set] += factor * sum;
      gx_sums[run.set] += factor * sum_x;
    });
    return;
  }
  // Sums over sets and over channels cross: one thread.
  ForEachNormRun(g, [&](auto, const NormRun& run) {
    const auto dy_at = dy_of(run);
    const auto dy_x_at = dy_x_of(run);
    const auto factor = [scale, channel = run.channel](int64_t i) {
      return scale == nullptr ? 1 : double{scale[channel + i]};
    };
    double *const dy_sum = &dy_sums[run.channel], *const dyx_sum = &dyx_sums[run.channel];
    ForEach<T>(width, [=](int64_t i) {
      dy_sum[i] += dy_at(i);
      dyx_sum[i] += dy_x_at(i);
    });
    g_sums[run.set] += SumOf<T>(width, [=](int64_t i) { return factor(i) * dy_at(i); });
    gx_sums[run.set] += SumOf<T>(width, [=](int64_t i) { return factor(i) * dy_x_at(i); });
  });
}

// Null skips a gradient. `of_ranks`, if each channel is a set: Σdy and then Σ(dy x̂) of the
// channels, and the number of elements of one, over the batches of all ranks, of which the moments
// are.
template <typename T>
void NormalizeGrad(const Grouping& g, const T* x, const T* dy, const std::vector<double>& mean,
                   const std::vector<double>& inverse_deviation, MomentsOf moments_of,
                   const ParameterOf<T>* scale, const std::vector<double>* of_ranks, Tensor* dx,
                   Tensor* dscale, Tensor* dbias, NormBuffers* buffers) {
  SumGradients(g, x, dy, mean, inverse_deviation, scale, buffers);
  WriteNumbers<ParameterOf<T>>(buffers->dy, dbias);
  WriteNumbers<ParameterOf<T>>(buffers->dyx, dscale);
  if (dx == nullptr) return;
  double part = moments_of == MomentsOf::kX ? 1.0 / g.set_size() : 0;
  if (of_ranks != nullptr) {
    part = 1 / of_ranks->back();
    const int64_t channels = g.num_channels();
    for (int64_t c = 0; c < channels; ++c) {
      buffers->g[c] = scale[c] * (*of_ranks)[c];
      buffers->gx[c] = scale[c] * (*of_ranks)[channels + c];
    }
  }
  T* const dxs = dx->data<T>();
  ForEachNormRunOnThreads(g, [&, width = g.size[3]](auto channel_step, const NormRun& run) {
    const T *const from = x + run.begin, *const dfrom = dy + run.begin;
    T* const to = dxs + run.begin;
    const double inverse = inverse_deviation[run.set], center = mean[run.set];
    const double g_sum = buffers->g[run.set], gx_sum = buffers->gx[run.set];
    if constexpr (channel_step == 0) {
      // The same as below, as dy_factor dy + x_factor (x - mean) + shift.
      const double dy_factor = inverse * (scale == nullptr ? 1 : scale[run.channel]);
      const double x_factor = -part * gx_sum * inverse * inverse;
      const double shift = -part * g_sum * inverse;
      ForEach<T>(width, [=](int64_t i) {
        to[i] = static_cast<T>(dy_factor * dfrom[i] + x_factor * (from[i] - center) + shift);
      });
    } else {
      ForEach<T>(width, [=, channel = run.channel](int64_t i) {
        const double factor = scale == nullptr ? 1 : scale[channel + i];
        const double x_hat = (from[i] - center) * inverse;
        to[i] = static_cast<T>((factor * dfrom[i] - part * (g_sum + x_hat * gx_sum)) * inverse);
      });
    }
  });
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_NORMALIZE_H_
