// Normalization by rows and by groups of channels (ops/cpu/normalize.h).
//
// In single precision, oneDNN computes layouts in which rows are sets and columns channels, as in
// layer_norm. It also sums in single precision, so rows whose mean is m deviations from 0 have y to
// about 1e-8 m. Loops in double precision compute the rest.
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/cpu/normalize.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Every row is a set, every column a channel.
Grouping ByRow(int64_t rows, int64_t columns) {
  return {{1, 1, rows, columns}, {0, 0, 1, 0}, {0, 0, 0, 1}};
}

bool IsByRow(const Grouping& g) {
  constexpr std::array<int64_t, 4> kRows = {0, 0, 1, 0}, kColumns = {0, 0, 0, 1};
  return g.size[0] == 1 && g.size[1] == 1 && g.set_step == kRows && g.channel_step == kColumns;
}

// --- oneDNN --------------------------------------------------------------------------------------

// Normalizes the rows of a matrix, with a scale and a bias for each column. A null scale is 1, a
// null bias 0. Null skips an output, in every step.
class DnnlRowNorm {
 public:
  explicit DnnlRowNorm(double epsilon) : epsilon_(static_cast<float>(epsilon)) {}

  static bool Supports(const Grouping& g) { return IsByRow(g) && g.num_elements() > 0; }

  // The primitive for these sets, with or without an output. Prepares it before the first step,
  // too.
  DnnlPrimitive& ForwardOf(const Grouping& g, bool has_mean, bool has_variance) {
    Reserve(g);
    return of_shape_({g.size[2], g.size[3]}, [&](const Shape& shape) {
      const auto forward = Describe(shape);
      return DnnlPrimitive(dnnl::layer_normalization_forward(forward), forward.scratchpad_desc(),
                           {{DNNL_ARG_SRC, shape.matrix(), shape.matrix()},
                            {DNNL_ARG_SCALE, shape.row(), shape.row()},
                            {DNNL_ARG_SHIFT, shape.row(), shape.row()}},
                           {{DNNL_ARG_DST, shape.matrix(), shape.matrix()},
                            {DNNL_ARG_MEAN, shape.column(), shape.column(), has_mean},
                            {DNNL_ARG_VARIANCE, shape.column(), shape.column(), has_variance}});
    });
  }

  void Forward(const Grouping& g, const float* x, const float* scale, const float* bias, float* y,
               float* mean, float* variance) {
    ForwardOf(g, mean != nullptr, variance != nullptr)
        .Run({x, scale != nullptr ? scale : ones_.data(), bias != nullptr ? bias : zeros_.data()},
             {y, mean, variance});
  }

  DnnlPrimitive& BackwardOf(const Grouping& g, bool has_dx, bool has_dscale, bool has_dbias) {
    Reserve(g);
    return of_shape_({g.size[2], g.size[3]}, [&](const Shape& shape) {
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
                           {{DNNL_ARG_DIFF_SRC, shape.matrix(), shape.matrix(), has_dx},
                            {DNNL_ARG_DIFF_SCALE, shape.row(), shape.row(), has_dscale},
                            {DNNL_ARG_DIFF_SHIFT, shape.row(), shape.row(), has_dbias}});
    });
  }

  void Backward(const Grouping& g, const float* x, const float* dy, const float* mean,
                const float* variance, const float* scale, float* dx, float* dscale, float* dbias) {
    DnnlPrimitive& primitive = BackwardOf(g, dx != nullptr, dscale != nullptr, dbias != nullptr);
    if (scale == nullptr) scale = ones_.data();
    // The primitive requires a bias, which it does not read.
    primitive.Run({x, dy, mean, variance, scale, scale}, {dx, dscale, dbias});
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

  void Reserve(const Grouping& g) {
    ones_.resize(g.size[3], 1);
    zeros_.resize(g.size[3], 0);
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

// The channels of an image are split into groups; each group is a set.
Grouping ByGroup(const NormImage& x, int64_t groups) {
  // An image without channels has none.
  const int64_t width = groups == 0 ? 0 : x.channels / groups;
  if (x.channels_last) {
    return {{x.batch, x.space, groups, width}, {groups, 0, 1, 0}, {0, 0, width, 1}};
  }
  return {{x.batch, groups, width, x.space}, {groups, 1, 0, 0}, {0, width, 1, 0}};
}

// How an op of one kind groups the elements of X.
using GroupX = std::function<Grouping(const Dims& x)>;

GroupX LayerNormGroups(const KernelSpec& spec) {
  return [begin = spec.attrs.Int("begin_norm_axis")](const Dims& x) {
    const auto dims = absl::MakeConstSpan(x);
    return ByRow(NumElements(dims.first(begin)), NumElements(dims.subspan(begin)));
  };
}

GroupX GroupNormGroups(const KernelSpec& spec) {
  return [last = ChannelsLast(spec), groups = spec.attrs.Int("groups")](const Dims& x) {
    return ByGroup(NormImage(x, last), groups);
  };
}

GroupX InstanceNormGroups(const KernelSpec&) {
  return [](const Dims& x) {
    const NormImage image(x, /*channels_last=*/false);
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
  return op.Make(Floats(x), [=, group = groups(op.spec())](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    DnnlRowNorm made(epsilon);
    const Grouping of_types = group(x(types).dims());
    if (std::is_same_v<T, float> && !kept.is_inverse_deviation && DnnlRowNorm::Supports(of_types)) {
      made.ForwardOf(of_types, mean.get(types) != nullptr, variance.get(types) != nullptr);
    }
    return [=, row_norm = made, moments = NormMoments(),
            buffers = NormBuffers()](const KernelContext& ctx) mutable {
      const Grouping g = group(x(ctx).dims());
      if constexpr (std::is_same_v<T, float>) {
        if (!kept.is_inverse_deviation && DnnlRowNorm::Supports(g)) {
          return row_norm.Forward(g, x.data<T>(ctx), scale.data_or_null<T>(ctx),
                                  bias.data_or_null<T>(ctx), y.data<T>(ctx),
                                  mean.data_or_null<T>(ctx), variance.data_or_null<T>(ctx));
        }
      }
      moments.SetTo(g, x.data<T>(ctx), &buffers);
      WriteNumbers<T>(moments.mean, mean.get(ctx));
      if (!kept.is_inverse_deviation) WriteNumbers<T>(moments.variance, variance.get(ctx));
      moments.InvertDeviation(epsilon);
      if (kept.is_inverse_deviation) WriteNumbers<T>(moments.variance, variance.get(ctx));
      Normalize(g, x.data<T>(ctx), moments.mean, moments.variance, scale.data_or_null<T>(ctx),
                bias.data_or_null<T>(ctx), y.data<T>(ctx));
    };
  });
}

template <GroupX (*groups)(const KernelSpec&)>
absl::StatusOr<Kernel> Backward(OpKernel op, const Kept& kept) {
  const In x = op.in("X"), dy = op.in("Y@GRAD"), scale = op.in("Scale");
  const In mean = op.in(kept.mean), variance = op.in(kept.variance);
  op.Ignore({"Bias", "Y"});
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  const double epsilon = op.attrs().Float("epsilon");
  return op.Make(Floats(x), [=, group = groups(op.spec())](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    DnnlRowNorm made(epsilon);
    const Grouping of_types = group(x(types).dims());
    if (std::is_same_v<T, float> && !kept.is_inverse_deviation && DnnlRowNorm::Supports(of_types)) {
      made.BackwardOf(of_types, dx.get(types) != nullptr, dscale.get(types) != nullptr,
                      dbias.get(types) != nullptr);
    }
    return [=, row_norm = made, moments = NormMoments(),
            buffers = NormBuffers()](const KernelContext& ctx) mutable {
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
      NormalizeGrad(g, x.data<T>(ctx), dy.data<T>(ctx), moments.mean, moments.variance,
                    MomentsOf::kX, scale.data_or_null<T>(ctx), /*of_ranks=*/nullptr, dx.get(ctx),
                    dscale.get(ctx), dbias.get(ctx), &buffers);
    };
  });
}

// Of Paddle 1: (X - Mean) / deviation is (Y - Bias) / Scale. X shifted to means of 0 has the same
// gradient. Where Scale is 0, Y does not say what X was: it counts as the mean.
absl::StatusOr<Kernel> GroupNormGradFromY(OpKernel op) {
  op.Ignore({"Mean"});
  const In y = op.in("Y"), dy = op.in("Y@GRAD"), scale = op.in("Scale"), bias = op.in("Bias");
  const In variance = op.in("Variance");
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  const double epsilon = op.attrs().Float("epsilon");
  const int64_t groups = op.attrs().Int("groups");
  const bool channels_last = ChannelsLast(op.spec());
  return op.Make(Floats(y), [=, group = GroupNormGroups(op.spec()), moments = NormMoments(),
                             buffers = NormBuffers()](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Dims& dims = y(ctx).dims();
    const int64_t channels = channels_last ? dims.back() : dims[1];
    const int64_t image = dims[0] == 0 ? 0 : y(ctx).size() / dims[0];
    const int64_t plane = channels == 0 ? 0 : image / channels;
    const T *scales = scale.data_or_null<T>(ctx), *biases = bias.data_or_null<T>(ctx);
    std::vector<T> x(y(ctx).size());
    for (int64_t i = 0; i < y(ctx).size(); ++i) {
      const int64_t c = channels_last ? i % channels : i / plane % channels;
      const int64_t statistic = i / image * groups + c / (channels / groups);
      T normalized = y.data<T>(ctx)[i] - (biases == nullptr ? T(0) : biases[c]);
      if (scales != nullptr) normalized = scales[c] == 0 ? T(0) : normalized / scales[c];
      x[i] = normalized * std::sqrt(variance.data<T>(ctx)[statistic] + static_cast<T>(epsilon));
    }
    Tensor means;
    means.Resize(variance(ctx).dtype(), variance(ctx).dims());
    std::fill_n(means.data<T>(), means.size(), T(0));
    moments.SetTo<T>(means, variance(ctx));
    moments.InvertDeviation(epsilon);
    NormalizeGrad(group(dims), x.data(), dy.data<T>(ctx), moments.mean, moments.variance,
                  MomentsOf::kX, scales, /*of_ranks=*/nullptr, dx.get(ctx), dscale.get(ctx),
                  dbias.get(ctx), &buffers);
  });
}

absl::StatusOr<Kernel> GroupNormGrad(const KernelSpec& spec) {
  return spec.Input("X") < 0 ? GroupNormGradFromY(spec)
                             : Backward<GroupNormGroups>(spec, kVariance);
}

template <GroupX (*groups)(const KernelSpec&)>
void AddNorm(KernelTable* table, const std::string& type, const Kept& kept) {
  table->Add(
      type, [&kept](const KernelSpec& spec) { return Forward<groups>(spec, kept); },
      [&kept](const KernelSpec& spec) { return Backward<groups>(spec, kept); });
}

}  // namespace

void AddNormKernels(KernelTable* table) {
  AddNorm<LayerNormGroups>(table, "layer_norm", kVariance);
  table->Add(
      "group_norm",
      [](const KernelSpec& spec) { return Forward<GroupNormGroups>(spec, kVariance); },
      GroupNormGrad);
  AddNorm<InstanceNormGroups>(table, "instance_norm", kInverseDeviation);
}

}  // namespace weft
