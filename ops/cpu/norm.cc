// Normalization: y = scale (x - mean) / √(variance + epsilon) + bias, with a mean and a variance
// per set of elements, and a scale and a bias per channel. Ops differ in the definition of sets and
// channels.
//
// With x̂ = (y - bias) / scale and g = scale dy, over the n elements of a set
//   dx = (g - Σg / n - x̂ Σ(g x̂) / n) / √(variance + epsilon)
// if the mean and the variance come from x, and dx = g / √(variance + epsilon) if they do not. Over
// the elements of a channel, dscale = Σ(dy x̂) and dbias = Σdy.
//
// In single precision, oneDNN computes layouts in which rows are sets and columns channels, as in
// layer_norm. It also sums in single precision, so rows whose mean is m deviations from 0 have y to
// about 1e-8 m. Plain loops in double precision compute the rest: they are faster than its batch
// normalization in this layout (docs/benchmarks.md).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/columns.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// X as an array of four dimensions. The index of an element's set is the sum of its positions times
// set_step; likewise for its channel. Along the last dimension, steps are 0 or 1.
struct Grouping {
  std::array<int64_t, 4> size, set_step, channel_step;

  bool HasRowsForSetsAndColumnsForChannels() const {
    constexpr std::array<int64_t, 4> kRows = {0, 0, 1, 0}, kColumns = {0, 0, 0, 1};
    return size[0] == 1 && size[1] == 1 && set_step == kRows && channel_step == kColumns;
  }
  // As in batch_norm with channels last: every column is a set and a channel.
  bool HasColumnsForBoth() const {
    constexpr std::array<int64_t, 4> kColumns = {0, 0, 0, 1};
    return size[0] == 1 && size[1] == 1 && set_step == kColumns && channel_step == kColumns;
  }
  int64_t num_elements() const { return size[0] * size[1] * size[2] * size[3]; }
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

struct Image {
  int64_t batch, channels, space;
  bool channels_last;

  Image(const Dims& dims, bool channels_last)
      : batch(dims[0]),
        channels(channels_last ? dims.back() : dims[1]),
        space(1),
        channels_last(channels_last) {
    const size_t first = channels_last ? 1 : 2;
    for (size_t i = 0; i + 2 < dims.size(); ++i) space *= dims[first + i];
  }
};

bool ChannelsLast(const KernelSpec& spec) { return spec.attrs.String("data_layout") == "NHWC"; }

// All elements of a channel are one set.
Grouping ByChannel(const Image& x) {
  if (x.channels_last || x.space == 1) {
    const std::array<int64_t, 4> step = {0, 0, 0, 1};
    return {{1, 1, x.batch * x.space, x.channels}, step, step};
  }
  const std::array<int64_t, 4> step = {0, 0, 1, 0};
  return {{1, x.batch, x.channels, x.space}, step, step};
}

// The channels of an image are split into groups; each group is a set.
Grouping ByGroup(const Image& x, int64_t groups) {
  // An image without channels has none.
  const int64_t width = groups == 0 ? 0 : x.channels / groups;
  if (x.channels_last) {
    return {{x.batch, x.space, groups, width}, {groups, 0, 1, 0}, {0, 0, width, 1}};
  }
  return {{x.batch, groups, width, x.space}, {groups, 1, 0, 0}, {0, width, 1, 0}};
}

// Every row is a set, every column a channel.
Grouping ByRow(int64_t rows, int64_t columns) {
  return {{1, 1, rows, columns}, {0, 0, 1, 0}, {0, 0, 0, 1}};
}

// Calls visit(set_step, channel_step, set, channel, begin) for all runs along the last dimension;
// the steps are compile-time constants.
template <typename Visit>
void ForEachRun(const Grouping& g, Visit visit) {
  const auto walk = [&](auto set_step, auto channel_step) {
    int64_t begin = 0;
    for (int64_t a = 0; a < g.size[0]; ++a) {
      for (int64_t b = 0; b < g.size[1]; ++b) {
        for (int64_t c = 0; c < g.size[2]; ++c) {
          visit(set_step, channel_step, a * g.set_step[0] + b * g.set_step[1] + c * g.set_step[2],
                a * g.channel_step[0] + b * g.channel_step[1] + c * g.channel_step[2], begin);
          begin += g.size[3];
        }
      }
    }
  };
  constexpr std::integral_constant<int64_t, 0> kSame;
  constexpr std::integral_constant<int64_t, 1> kNext;
  if (g.set_step[3] == 1) return walk(kNext, kNext);
  if (g.channel_step[3] == 1) return walk(kSame, kNext);
  walk(kSame, kSame);
}

// Adds f(i) to sums[i], or all to the first one.
template <typename T, int64_t step, typename F>
void AddRun(int64_t width, double* sums, F f) {
  if constexpr (step == 0) {
    *sums += SumOf<T>(width, f);
  } else {
    ForEach<T>(width, [=](int64_t i) { sums[i] += f(i); });
  }
}

// Buffers of a kernel, so that a step allocates nothing.
struct Buffers {
  Columns columns;
  std::array<std::vector<double>, 4> tiles;  // by column of a long row
  std::array<std::vector<double>, 4> sums;
};

// Moments of each set.
struct Moments {
  std::vector<double> mean, variance;

  template <typename T>
  void SetTo(const Grouping& g, const T* x, Buffers* buffers) {
    mean.assign(g.num_sets(), 0);
    variance.assign(g.num_sets(), 0);
    if (g.HasColumnsForBoth() && g.num_elements() > 0) return SetToColumns(g, x, buffers);
    const int64_t width = g.size[3];
    const double count = std::max<int64_t>(g.set_size(), 1);
    ForEachRun(g, [&](auto set_step, auto, int64_t set, int64_t, int64_t begin) {
      AddRun<T, set_step>(width, &mean[set], [&](int64_t i) { return double{x[begin + i]}; });
    });
    for (double& m : mean) m /= count;
    ForEachRun(g, [&](auto set_step, auto, int64_t set, int64_t, int64_t begin) {
      AddRun<T, set_step>(width, &variance[set], [&](int64_t i) {
        const double distance = x[begin + i] - mean[set + i * set_step];
        return distance * distance;
      });
    });
    for (double& v : variance) v /= count;
  }

  // In one pass: the squares of distances to the first row, whose precision does not suffer from a
  // mean far from 0.
  template <typename T>
  void SetToColumns(const Grouping& g, const T* x, Buffers* buffers) {
    Columns& columns = buffers->columns;
    columns.SetSize(g.size[2], g.size[3]);
    std::vector<double>& first = buffers->tiles[0];
    columns.Tile([x](int64_t c) { return x[c]; }, &first);
    columns.Sum<T, 2>([x, first = first.data()](int64_t i, int64_t j) {
      const double distance = x[i] - first[j];
      return std::array<double, 2>{distance, distance * distance};
    });
    const auto count = static_cast<double>(g.set_size());
    for (int64_t c = 0; c < g.num_sets(); ++c) {
      const double distance = columns.sum(0, c) / count;
      mean[c] = first[c] + distance;
      variance[c] = std::max(columns.sum(1, c) / count - distance * distance, 0.0);
    }
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
void Write(const std::vector<double>& values, Tensor* to) {
  if (to != nullptr) std::copy(values.begin(), values.end(), to->data<T>());
}

// A null scale is 1 everywhere, a null bias 0.
template <typename T>
void Normalize(const Grouping& g, const T* x, const std::vector<double>& mean,
               const std::vector<double>& inverse_deviation, const T* scale, const T* bias, T* y,
               Buffers* buffers) {
  if (g.HasColumnsForBoth()) {
    Columns& columns = buffers->columns;
    columns.SetSize(g.size[2], g.size[3]);
    auto& [centers, factors, shifts, unused] = buffers->tiles;
    columns.Tile([&](int64_t c) { return mean[c]; }, &centers);
    columns.Tile(
        [&](int64_t c) { return inverse_deviation[c] * (scale == nullptr ? 1 : scale[c]); },
        &factors);
    columns.Tile([&](int64_t c) { return bias == nullptr ? 0 : bias[c]; }, &shifts);
    columns.ForEach<T>([x, y, center = centers.data(), factor = factors.data(),
                        shift = shifts.data()](int64_t i, int64_t j) {
      y[i] = static_cast<T>((x[i] - center[j]) * factor[j] + shift[j]);
    });
    return;
  }
  const int64_t width = g.size[3];
  ForEachRun(g, [&](auto set_step, auto channel_step, int64_t set, int64_t channel, int64_t begin) {
    const T* from = x + begin;
    T* to = y + begin;
    if constexpr (channel_step == 0) {
      const double center = mean[set], shift = bias == nullptr ? 0 : bias[channel];
      const double factor = inverse_deviation[set] * (scale == nullptr ? 1 : scale[channel]);
      ForEach<T>(width,
                 [=](int64_t i) { to[i] = static_cast<T>((from[i] - center) * factor + shift); });
    } else {
      const double *means = mean.data(), *inverses = inverse_deviation.data();
      ForEach<T>(width, [=](int64_t i) {
        const int64_t s = set + i * set_step, c = channel + i;
        const double factor = scale == nullptr ? 1 : scale[c];
        const double shift = bias == nullptr ? 0 : bias[c];
        to[i] = static_cast<T>((from[i] - means[s]) * inverses[s] * factor + shift);
      });
    }
  });
}

enum class MomentsOf { kX, kOther };

// NormalizeGrad where every column is a set and a channel.
template <typename T>
void NormalizeGradOfColumns(const Grouping& g, const T* x, const T* dy,
                            const std::vector<double>& mean,
                            const std::vector<double>& inverse_deviation, MomentsOf moments_of,
                            const T* scale, Tensor* dx, Tensor* dscale, Tensor* dbias,
                            Buffers* buffers) {
  Columns& columns = buffers->columns;
  columns.SetSize(g.size[2], g.size[3]);
  auto& [centers, dy_factors, x_factors, shifts] = buffers->tiles;
  columns.Tile([&](int64_t c) { return mean[c]; }, &centers);
  const double* const center = centers.data();
  columns.Sum<T, 2>([x, dy, center](int64_t i, int64_t j) {
    return std::array<double, 2>{dy[i], dy[i] * (x[i] - center[j])};
  });
  for (int64_t c = 0; c < g.num_channels(); ++c) {
    if (dbias != nullptr) dbias->data<T>()[c] = static_cast<T>(columns.sum(0, c));
    if (dscale == nullptr) continue;
    dscale->data<T>()[c] = static_cast<T>(columns.sum(1, c) * inverse_deviation[c]);
  }
  if (dx == nullptr) return;
  const double part = moments_of == MomentsOf::kX ? 1.0 / g.set_size() : 0;
  const auto factor = [&](int64_t c) {
    return inverse_deviation[c] * (scale == nullptr ? 1 : scale[c]);
  };
  columns.Tile(factor, &dy_factors);
  columns.Tile(
      [&](int64_t c) {
        return -part * factor(c) * columns.sum(1, c) * inverse_deviation[c] * inverse_deviation[c];
      },
      &x_factors);
  columns.Tile([&](int64_t c) { return -part * factor(c) * columns.sum(0, c); }, &shifts);
  columns.ForEach<T>([x, dy, center, to = dx->data<T>(), dy_factor = dy_factors.data(),
                      x_factor = x_factors.data(), shift = shifts.data()](int64_t i, int64_t j) {
    to[i] = static_cast<T>(dy_factor[j] * dy[i] + x_factor[j] * (x[i] - center[j]) + shift[j]);
  });
}

// Null skips a gradient.
template <typename T>
void NormalizeGrad(const Grouping& g, const T* x, const T* dy, const std::vector<double>& mean,
                   const std::vector<double>& inverse_deviation, MomentsOf moments_of,
                   const T* scale, Tensor* dx, Tensor* dscale, Tensor* dbias, Buffers* buffers) {
  if (g.HasColumnsForBoth()) {
    return NormalizeGradOfColumns(g, x, dy, mean, inverse_deviation, moments_of, scale, dx, dscale,
                                  dbias, buffers);
  }
  const int64_t width = g.size[3];
  auto& [g_sums, gx_sums, dy_sums, dyx_sums] = buffers->sums;
  g_sums.assign(g.num_sets(), 0);
  gx_sums.assign(g.num_sets(), 0);
  dy_sums.assign(g.num_channels(), 0);
  dyx_sums.assign(g.num_channels(), 0);
  ForEachRun(g, [&](auto set_step, auto channel_step, int64_t set, int64_t channel, int64_t begin) {
    const auto factor = [&](int64_t i) {
      return scale == nullptr ? 1 : double{scale[channel + i * channel_step]};
    };
    const auto dy_x = [&](int64_t i) {
      const int64_t s = set + i * set_step;
      return dy[begin + i] * (x[begin + i] - mean[s]) * inverse_deviation[s];
    };
    if constexpr (channel_step == 0) {
      const double sum = SumOf<T>(width, [&](int64_t i) { return double{dy[begin + i]}; });
      const double sum_x = SumOf<T>(width, dy_x);
      dy_sums[channel] += sum;
      dyx_sums[channel] += sum_x;
      g_sums[set] += factor(0) * sum;
      gx_sums[set] += factor(0) * sum_x;
    } else {
      AddRun<T, 1>(width, &dy_sums[channel], [&](int64_t i) { return double{dy[begin + i]}; });
      AddRun<T, 1>(width, &dyx_sums[channel], dy_x);
      AddRun<T, set_step>(width, &g_sums[set],
                          [&](int64_t i) { return factor(i) * dy[begin + i]; });
      AddRun<T, set_step>(width, &gx_sums[set], [&](int64_t i) { return factor(i) * dy_x(i); });
    }
  });
  Write<T>(dy_sums, dbias);
  Write<T>(dyx_sums, dscale);
  if (dx == nullptr) return;
  const double part = moments_of == MomentsOf::kX ? 1.0 / g.set_size() : 0;
  ForEachRun(g, [&](auto set_step, auto channel_step, int64_t set, int64_t channel, int64_t begin) {
    const T *from = x + begin, *dfrom = dy + begin;
    T* to = dx->data<T>() + begin;
    if constexpr (channel_step == 0) {
      // The same as below, as dy_factor dy + x_factor (x - mean) + shift.
      const double inverse = inverse_deviation[set], center = mean[set];
      const double dy_factor = inverse * (scale == nullptr ? 1 : scale[channel]);
      const double x_factor = -part * gx_sums[set] * inverse * inverse;
      const double shift = -part * g_sums[set] * inverse;
      ForEach<T>(width, [=](int64_t i) {
        to[i] = static_cast<T>(dy_factor * dfrom[i] + x_factor * (from[i] - center) + shift);
      });
    } else {
      const double *means = mean.data(), *inverses = inverse_deviation.data();
      const double *g_sum = g_sums.data(), *gx_sum = gx_sums.data();
      ForEach<T>(width, [=](int64_t i) {
        const int64_t s = set + i * set_step;
        const double factor = scale == nullptr ? 1 : scale[channel + i];
        const double x_hat = (from[i] - means[s]) * inverses[s];
        to[i] = static_cast<T>((factor * dfrom[i] - part * (g_sum[s] + x_hat * gx_sum[s])) *
                               inverses[s]);
      });
    }
  });
}

// --- oneDNN --------------------------------------------------------------------------------------

// Normalizes the rows of a matrix, with a scale and a bias for each column. A null scale is 1, a
// null bias 0. Null skips an output, in every step.
class DnnlRowNorm {
 public:
  explicit DnnlRowNorm(double epsilon) : epsilon_(static_cast<float>(epsilon)) {}

  static bool Supports(const Grouping& g) {
    return g.HasRowsForSetsAndColumnsForChannels() && g.num_elements() > 0;
  }

  void Forward(const Grouping& g, const float* x, const float* scale, const float* bias, float* y,
               float* mean, float* variance) {
    const auto make = [&](const Shape& shape) {
      const auto forward = Describe(shape);
      return DnnlPrimitive(
          dnnl::layer_normalization_forward(forward), forward.scratchpad_desc(),
          {{DNNL_ARG_SRC, shape.matrix(), shape.matrix()},
           {DNNL_ARG_SCALE, shape.row(), shape.row()},
           {DNNL_ARG_SHIFT, shape.row(), shape.row()}},
          {{DNNL_ARG_DST, shape.matrix(), shape.matrix()},
           {DNNL_ARG_MEAN, shape.column(), shape.column(), mean != nullptr},
           {DNNL_ARG_VARIANCE, shape.column(), shape.column(), variance != nullptr}});
    };
    of_shape_({g.size[2], g.size[3]}, make)
        .Run({x, Given(scale, 1, &ones_, g), Given(bias, 0, &zeros_, g)}, {y, mean, variance});
  }

  void Backward(const Grouping& g, const float* x, const float* dy, const float* mean,
                const float* variance, const float* scale, float* dx, float* dscale, float* dbias) {
    const auto make = [&](const Shape& shape) {
      const dnnl::layer_normalization_backward::primitive_desc backward(
          {dnnl::prop_kind::backward, shape.matrix(), shape.matrix(), epsilon_, kFlags},
          DnnlAttributes(), DnnlCpuEngine(), Describe(shape));
      return DnnlPrimitive(dnnl::layer_normalization_backward(backward), backward.scratchpad_desc(),
                           {{DNNL_ARG_SRC, shape.matrix(), shape.matrix()},
                            {DNNL_ARG_DIFF_DST, shape.matrix(), shape.matrix()},
                            {DNNL_ARG_MEAN, shape.column(), shape.column()},
                            {DNNL_ARG_VARIANCE, shape.column(), shape.column()},
                            {DNNL_ARG_SCALE, shape.row(), shape.row()},
                            {DNNL_ARG_SHIFT, shape.row(), shape.row()}},
                           {{DNNL_ARG_DIFF_SRC, shape.matrix(), shape.matrix(), dx != nullptr},
                            {DNNL_ARG_DIFF_SCALE, shape.row(), shape.row(), dscale != nullptr},
                            {DNNL_ARG_DIFF_SHIFT, shape.row(), shape.row(), dbias != nullptr}});
    };
    scale = Given(scale, 1, &ones_, g);
    // The primitive requires a bias, which it does not read.
    of_shape_({g.size[2], g.size[3]}, make)
        .Run({x, dy, mean, variance, scale, scale}, {dx, dscale, dbias});
  }

 private:
  using Desc = dnnl::memory::desc;

  struct Shape {
    int64_t rows, columns;

    bool operator!=(const Shape& other) const {
      return rows != other.rows || columns != other.columns;
    }
    Desc matrix() const { return {{rows, columns}, kFloat, dnnl::memory::format_tag::ab}; }
    Desc row() const { return {{columns}, kFloat, dnnl::memory::format_tag::a}; }
    Desc column() const { return {{rows}, kFloat, dnnl::memory::format_tag::a}; }
  };

  dnnl::layer_normalization_forward::primitive_desc Describe(const Shape& shape) const {
    return {{dnnl::prop_kind::forward_training, shape.matrix(), epsilon_, kFlags},
            DnnlAttributes(),
            DnnlCpuEngine()};
  }

  // One number per column, or the same value for all columns.
  static const float* Given(const float* numbers, float value, std::vector<float>* same,
                            const Grouping& g) {
    if (numbers != nullptr) return numbers;
    same->resize(g.size[3], value);
    return same->data();
  }

  static constexpr auto kFloat = dnnl::memory::data_type::f32;
  // Scale and bias, separate.
  static constexpr auto kFlags =
      static_cast<dnnl::normalization_flags>(dnnl_use_scale | dnnl_use_shift);
  float epsilon_;
  DnnlOfShape<Shape> of_shape_;
  std::vector<float> ones_, zeros_;
};

// --- layer_norm, group_norm, instance_norm -------------------------------------------------------

// How an op of one kind groups the elements of X.
using GroupX = std::function<Grouping(const Dims& x)>;

GroupX LayerNormGroups(const KernelSpec& spec) {
  return [begin = spec.attrs.Int("begin_norm_axis")](const Dims& x) {
    const auto dims = absl::MakeConstSpan(x);
    return ByRow(NumElements(dims.first(begin)), NumElements(dims.subspan(begin)));
  };
}

GroupX GroupNormGroups(const KernelSpec& spec) {
  return [channels_last = ChannelsLast(spec), groups = spec.attrs.Int("groups")](const Dims& x) {
    return ByGroup(Image(x, channels_last), groups);
  };
}

GroupX BatchNormGroups(const KernelSpec& spec) {
  return [channels_last = ChannelsLast(spec)](const Dims& x) {
    return ByChannel(Image(x, channels_last));
  };
}

GroupX InstanceNormGroups(const KernelSpec&) {
  return [](const Dims& x) {
    const Image image(x, /*channels_last=*/false);
    return ByGroup(image, image.channels);
  };
}

// What an op keeps for its gradient op besides the mean, and in which slot.
struct Kept {
  const char* mean;
  const char* variance;
  bool is_inverse_deviation;
};
constexpr Kept kVariance = {"Mean", "Variance", false};
constexpr Kept kInverseDeviation = {"SavedMean", "SavedVariance", true};

template <GroupX (*groups)(const KernelSpec&)>
absl::StatusOr<Kernel> Forward(OpKernel op, const Kept& kept) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias");
  const Out y = op.out("Y"), mean = op.out(kept.mean), variance = op.out(kept.variance);
  const double epsilon = op.attrs().Float("epsilon");
  return op.Make(Floats(x), [=, group = groups(op.spec()), row_norm = DnnlRowNorm(epsilon),
                             moments = Moments(),
                             buffers = Buffers()](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Grouping g = group(x(ctx).dims());
    if constexpr (std::is_same_v<T, float>) {
      if (!kept.is_inverse_deviation && DnnlRowNorm::Supports(g)) {
        return row_norm.Forward(g, x.data<T>(ctx), scale.data_or_null<T>(ctx),
                                bias.data_or_null<T>(ctx), y.data<T>(ctx),
                                mean.data_or_null<T>(ctx), variance.data_or_null<T>(ctx));
      }
    }
    moments.SetTo(g, x.data<T>(ctx), &buffers);
    Write<T>(moments.mean, mean.get(ctx));
    if (!kept.is_inverse_deviation) Write<T>(moments.variance, variance.get(ctx));
    moments.InvertDeviation(epsilon);
    if (kept.is_inverse_deviation) Write<T>(moments.variance, variance.get(ctx));
    Normalize(g, x.data<T>(ctx), moments.mean, moments.variance, scale.data_or_null<T>(ctx),
              bias.data_or_null<T>(ctx), y.data<T>(ctx), &buffers);
  });
}

template <GroupX (*groups)(const KernelSpec&)>
absl::StatusOr<Kernel> Backward(OpKernel op, const Kept& kept) {
  const In x = op.in("X"), dy = op.in("Y@GRAD"), scale = op.in("Scale");
  const In mean = op.in(kept.mean), variance = op.in(kept.variance);
  op.Ignore({"Bias", "Y"});
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  const double epsilon = op.attrs().Float("epsilon");
  return op.Make(Floats(x), [=, group = groups(op.spec()), row_norm = DnnlRowNorm(epsilon),
                             moments = Moments(),
                             buffers = Buffers()](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Grouping g = group(x(ctx).dims());
    if constexpr (std::is_same_v<T, float>) {
      if (!kept.is_inverse_deviation && DnnlRowNorm::Supports(g)) {
        return row_norm.Backward(g, x.data<T>(ctx), dy.data<T>(ctx), mean.data<T>(ctx),
                                 variance.data<T>(ctx), scale.data_or_null<T>(ctx),
                                 dx.data_or_null<T>(ctx), dscale.data_or_null<T>(ctx),
                                 dbias.data_or_null<T>(ctx));
      }
    }
    moments.SetTo<T>(mean(ctx), variance(ctx));
    if (!kept.is_inverse_deviation) moments.InvertDeviation(epsilon);
    NormalizeGrad(g, x.data<T>(ctx), dy.data<T>(ctx), moments.mean, moments.variance, MomentsOf::kX,
                  scale.data_or_null<T>(ctx), dx.get(ctx), dscale.get(ctx), dbias.get(ctx),
                  &buffers);
  });
}

template <GroupX (*groups)(const KernelSpec&)>
void AddNorm(KernelTable* table, const std::string& type, const Kept& kept) {
  table->Add(
      type, [&kept](const KernelSpec& spec) { return Forward<groups>(spec, kept); },
      [&kept](const KernelSpec& spec) { return Backward<groups>(spec, kept); });
}

// --- batch_norm ----------------------------------------------------------------------------------

// Normalizes by the moments of the batch, which are mixed into the running moments,
//   MeanOut = momentum Mean + (1 - momentum) mean(X), VarianceOut likewise,
// or by the running moments, which then stay unchanged. As in Paddle, a batch of one element per
// channel is not normalized: Y = X.
absl::StatusOr<Kernel> BatchNorm(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias");
  const In mean = op.in("Mean"), variance = op.in("Variance");
  const Out y = op.out("Y"), mean_out = op.out("MeanOut"), variance_out = op.out("VarianceOut");
  const Out saved_mean = op.out("SavedMean"), saved_inverse = op.out("SavedVariance");
  const Out reserve_space = op.out("ReserveSpace");
  const OpAttrs& attrs = op.attrs();
  const bool uses_running = attrs.Bool("use_global_stats") ||
                            (attrs.Bool("is_test") && !attrs.Bool("trainable_statistics"));
  auto step = [=, group = BatchNormGroups(op.spec()), epsilon = attrs.Float("epsilon"),
               keep = attrs.Float("momentum"), moments = Moments(),
               buffers = Buffers()](const KernelContext& ctx, auto zero) mutable -> absl::Status {
    using T = decltype(zero);
    if (Tensor* unused = reserve_space.get(ctx)) unused->Resize(x(ctx).dtype(), {0});
    const Grouping g = group(x(ctx).dims());
    const bool is_normalized = uses_running || g.set_size() > 1;
    if (uses_running) {
      moments.SetTo<T>(mean(ctx), variance(ctx));
    } else if (is_normalized) {
      moments.SetTo(g, x.data<T>(ctx), &buffers);
    }
    const bool mixes = !uses_running && is_normalized;
    const auto mix = [&](const In& old, const std::vector<double>& now, Tensor* to) {
      if (to == nullptr) return;
      const T* const from = old.data<T>(ctx);
      T* const mixed = to->data<T>();
      for (int64_t c = 0; c < to->size(); ++c) {
        const double m = mixes ? keep * from[c] + (1 - keep) * now[c] : double{from[c]};
        mixed[c] = static_cast<T>(m);
      }
    };
    mix(mean, moments.mean, mean_out.get(ctx));
    mix(variance, moments.variance, variance_out.get(ctx));
    if (!is_normalized) {
      std::copy_n(x.data<T>(ctx), x(ctx).size(), y.data<T>(ctx));
      for (Tensor* saved : {saved_mean.get(ctx), saved_inverse.get(ctx)}) {
        if (saved != nullptr) std::fill_n(saved->data<T>(), saved->size(), T(0));
      }
      return absl::OkStatus();
    }
    moments.InvertDeviation(epsilon);
    Normalize(g, x.data<T>(ctx), moments.mean, moments.variance, scale.data<T>(ctx),
              bias.data<T>(ctx), y.data<T>(ctx), &buffers);
    Write<T>(moments.mean, saved_mean.get(ctx));
    Write<T>(moments.variance, saved_inverse.get(ctx));
    return absl::OkStatus();
  };
  op.InPlace(mean_out, mean).InPlace(variance_out, variance);
  return op.Make(Floats(x), std::move(step));
}

absl::StatusOr<Kernel> BatchNormGrad(OpKernel op) {
  const bool uses_running = op.attrs().Bool("use_global_stats") || op.attrs().Bool("is_test");
  // Running moments that were used are unchanged: MeanOut is Mean.
  const bool has_inputs = op.spec().Input("Mean") >= 0 && op.spec().Input("Variance") >= 0;
  const char* const kMean = !uses_running ? "SavedMean" : has_inputs ? "Mean" : "MeanOut";
  const char* const kVariance = !uses_running ? "SavedVariance"
                                : has_inputs  ? "Variance"
                                              : "VarianceOut";
  const In x = op.in("X"), dy = op.in("Y@GRAD"), scale = op.in("Scale");
  const In mean = op.in(kMean), variance = op.in(kVariance);
  op.Ignore({"Bias", "Mean", "MeanOut", "ReserveSpace", "SavedMean", "SavedVariance", "Variance",
             "VarianceOut"});
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  if (!mean || !variance) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs ", kMean, " and ", kVariance, ": missing"));
  }
  auto step = [=, group = BatchNormGroups(op.spec()), epsilon = op.attrs().Float("epsilon"),
               moments = Moments(),
               buffers = Buffers()](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Grouping g = group(x(ctx).dims());
    if (!uses_running && g.set_size() <= 1) {
      if (Tensor* to = dx.get(ctx)) std::copy_n(dy.data<T>(ctx), to->size(), to->data<T>());
      for (Tensor* gradient : {dscale.get(ctx), dbias.get(ctx)}) {
        if (gradient != nullptr) std::fill_n(gradient->data<T>(), gradient->size(), T(0));
      }
      return;
    }
    moments.SetTo<T>(mean(ctx), variance(ctx));
    if (uses_running) moments.InvertDeviation(epsilon);
    NormalizeGrad(g, x.data<T>(ctx), dy.data<T>(ctx), moments.mean, moments.variance,
                  uses_running ? MomentsOf::kOther : MomentsOf::kX, scale.data<T>(ctx), dx.get(ctx),
                  dscale.get(ctx), dbias.get(ctx), &buffers);
  };
  return op.Make(Floats(x), std::move(step));
}

// --- affine_channel ------------------------------------------------------------------------------

// Out = Scale X + Bias, by channel: with mean 0 and deviation 1.
absl::StatusOr<Kernel> AffineChannel(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias");
  const Out out = op.out("Out");
  auto step = [=, group = BatchNormGroups(op.spec()), moments = Moments(), buffers = Buffers()](
                  const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Grouping g = group(x(ctx).dims());
    moments.mean.assign(g.num_sets(), 0);
    moments.variance.assign(g.num_sets(), 1);
    Normalize(g, x.data<T>(ctx), moments.mean, moments.variance, scale.data<T>(ctx),
              bias.data<T>(ctx), out.data<T>(ctx), &buffers);
  };
  return op.Make(Floats(x), std::move(step));
}

absl::StatusOr<Kernel> AffineChannelGrad(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  auto step = [=, group = BatchNormGroups(op.spec()), moments = Moments(), buffers = Buffers()](
                  const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Grouping g = group(x(ctx).dims());
    moments.mean.assign(g.num_sets(), 0);
    moments.variance.assign(g.num_sets(), 1);
    NormalizeGrad(g, x.data<T>(ctx), dout.data<T>(ctx), moments.mean, moments.variance,
                  MomentsOf::kOther, scale.data<T>(ctx), dx.get(ctx), dscale.get(ctx),
                  dbias.get(ctx), &buffers);
  };
  return op.Make(Floats(x), std::move(step));
}

}  // namespace

void AddNormKernels(KernelTable* table) {
  AddNorm<LayerNormGroups>(table, "layer_norm", kVariance);
  AddNorm<GroupNormGroups>(table, "group_norm", kVariance);
  AddNorm<InstanceNormGroups>(table, "instance_norm", kInverseDeviation);
  // No kernel runs sync_batch_norm on several ranks.
  for (const char* type : {"batch_norm", "sync_batch_norm"}) {
    table->Add(type, BatchNorm, BatchNormGrad);
  }
  table->Add("affine_channel", AffineChannel, AffineChannelGrad);
}

}  // namespace weft
