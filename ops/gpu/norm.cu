// Normalization: y = scale (x - mean) / √(variance + epsilon) + bias, with a mean and a variance
// per set of elements, and a scale and a bias per channel; ops/cpu/normalize.h has the gradients.
// Arithmetic is in double precision.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/status_macros.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/op_kernel.h"
#include "ops/sums_of_ranks.h"

namespace weft {
namespace {

// X as a tensor of the dims `all`. A set are the elements along the dimensions of which `set` has
// 1, likewise for a channel.
struct NormDims {
  Dims all, set, channel;

  int64_t sets() const { return NumElements(set); }
  int64_t size() const { return NumElements(all); }
  int64_t set_size() const { return sets() == 0 ? 0 : size() / sets(); }
  // a: the set, b: the channel.
  absl::StatusOr<Loops> MakeLoops() const { return Loops::Make(MakeLoopNest(all, set, channel)); }
};

// Numbers per set, of fp64 or of the type of a tensor. The deviation is 1 / variance if that is
// inverse already.
template <typename M>
struct Moments {
  const M *mean, *variance;
  double epsilon;
  bool is_inverse;
  WEFT_DEVICE double Inverse(int64_t set) const {
    const double v = variance[set];
    return is_inverse ? v : 1 / sqrt(v + epsilon);
  }
};

struct StoreMean {
  double n;
  double* to;
  WEFT_DEVICE void operator()(int64_t at, double sum) const { to[at] = sum / n; }
};

template <typename T>
struct LoadSquaredDistance {
  const T* x;
  const double* mean;
  WEFT_DEVICE double operator()(int64_t i, int64_t set) const {
    const double distance = x[i] - mean[set];
    return distance * distance;
  }
};

template <typename T>
struct NormalizeElement {
  Loops loops;
  Moments<double> moments;
  const T *x, *scale, *bias;  // scale and bias may be null
  T* y;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t set, channel;
    loops.At(i, &set, &channel);
    const double factor = scale == nullptr ? 1 : scale[channel];
    const double shift = bias == nullptr ? 0 : bias[channel];
    y[i] = static_cast<T>((x[i] - moments.mean[set]) * moments.Inverse(set) * factor + shift);
  }
};

// The moments of x, in buffers of the kernel.
struct MomentBuffers {
  Tensor mean, variance, scratch;

  void Allocate(const NormDims& dims, const Tensor& x) {
    ScratchLike(x, &mean)->Resize(DType::kFloat64, {dims.sets()});
    ScratchLike(x, &variance)->Resize(DType::kFloat64, {dims.sets()});
  }

  template <typename T>
  absl::Status Compute(const KernelContext& ctx, const NormDims& dims, const Tensor& x) {
    Allocate(dims, x);
    ScratchLike(x, &scratch);
    const double n = static_cast<double>(std::max<int64_t>(dims.set_size(), 1));
    WEFT_RETURN_IF_ERROR(ReduceTo(ctx, dims.all, dims.set, 0.0, LoadElement<T>{x.data<T>()},
                                  gpu::Plus(), &scratch, StoreMean{n, mean.data<double>()}));
    return ReduceTo(ctx, dims.all, dims.set, 0.0,
                    LoadSquaredDistance<T>{x.data<T>(), mean.data<double>()}, gpu::Plus(), &scratch,
                    StoreMean{n, variance.data<double>()});
  }
};

template <typename T, typename M>
struct WriteMoments {
  Moments<M> moments;
  bool inverse;
  T *mean, *variance;  // may be null
  WEFT_DEVICE void operator()(int64_t set) const {
    if (mean != nullptr) mean[set] = static_cast<T>(moments.mean[set]);
    if (variance == nullptr) return;
    variance[set] = static_cast<T>(inverse ? moments.Inverse(set) : moments.variance[set]);
  }
};

// --- Gradients -----------------------------------------------------------------------------------

// Of a set Σg and Σ(g x̂), g = scale dy; of a channel Σdy and Σ(dy x̂).
struct Sums {
  double g, gx;
};
struct AddSums {
  WEFT_DEVICE Sums operator()(const Sums& a, const Sums& b) const {
    return {a.g + b.g, a.gx + b.gx};
  }
};

template <typename T>
struct LoadSums {
  Loops loops;
  Moments<T> moments;
  const T *x, *dy, *scale;  // null: no factor
  WEFT_DEVICE Sums operator()(int64_t i, int64_t) const {
    int64_t set, channel;
    loops.At(i, &set, &channel);
    const double g = dy[i] * (scale == nullptr ? 1.0 : static_cast<double>(scale[channel]));
    return {g, g * (x[i] - moments.mean[set]) * moments.Inverse(set)};
  }
};

struct StoreSums {
  Sums* to;
  WEFT_DEVICE void operator()(int64_t at, const Sums& sums) const { to[at] = sums; }
};

template <typename T>
struct StoreChannel {
  T *dscale, *dbias;  // may be null
  WEFT_DEVICE void operator()(int64_t at, const Sums& sums) const {
    if (dbias != nullptr) dbias[at] = static_cast<T>(sums.g);
    if (dscale != nullptr) dscale[at] = static_cast<T>(sums.gx);
  }
};

template <typename T>
struct NormalizeGradElement {
  Loops loops;
  Moments<T> moments;
  double part;  // 1 / n if the moments are those of x, else 0
  const Sums* sums;
  const T *x, *dy, *scale;
  T* dx;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t set, channel;
    loops.At(i, &set, &channel);
    const double inverse = moments.Inverse(set);
    const double factor = scale == nullptr ? 1 : scale[channel];
    const double x_hat = (x[i] - moments.mean[set]) * inverse;
    dx[i] =
        static_cast<T>((factor * dy[i] - part * (sums[set].g + x_hat * sums[set].gx)) * inverse);
  }
};

// From Σdy, Σ(dy x̂) and n of the ranks, by channel, which is a set: Σg / n and Σ(g x̂) / n.
template <typename T>
struct ReadGradSums {
  int64_t channels, ranks;
  const double* sums;
  const T* scale;
  Sums* to;
  WEFT_DEVICE void operator()(int64_t c) const {
    const int64_t stride = 2 * channels + 1;
    double n = 0, dy = 0, dyx = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      n += sums[r * stride + 2 * channels];
      dy += sums[r * stride + c];
      dyx += sums[r * stride + channels + c];
    }
    const double factor = static_cast<double>(scale[c]) / n;
    to[c] = {dy * factor, dyx * factor};
  }
};

struct GradientBuffers {
  Tensor sums, scratch;

  // Null skips a gradient, and is a scale of 1. `of_ranks`: what all ranks give (ReadGradSums),
  // if the moments are those of their batches.
  template <typename T>
  absl::Status Run(const KernelContext& ctx, const NormDims& dims, const Moments<T>& moments,
                   bool moments_of_x, const Tensor& x, const T* dy, const T* scale, T* dx,
                   T* dscale, T* dbias, const Tensor* of_ranks = nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Loops loops, dims.MakeLoops());
    ScratchLike(x, &sums)->Resize(DType::kUint8,
                                  {dims.sets() * static_cast<int64_t>(sizeof(Sums))});
    ScratchLike(x, &scratch);
    const T* const from = x.data<T>();
    if (dscale != nullptr || dbias != nullptr) {
      WEFT_RETURN_IF_ERROR(ReduceTo(ctx, dims.all, dims.channel, Sums{0, 0},
                                    LoadSums<T>{loops, moments, from, dy, nullptr}, AddSums(),
                                    &scratch, StoreChannel<T>{dscale, dbias}));
    }
    if (dx == nullptr) return absl::OkStatus();
    auto* const of_sets = static_cast<Sums*>(sums.raw());
    if (of_ranks != nullptr) {
      WEFT_RETURN_IF_ERROR(
          ForEach(ctx, dims.sets(),
                  ReadGradSums<T>{dims.sets(), of_ranks->size() / (2 * dims.sets() + 1),
                                  of_ranks->data<double>(), scale, of_sets}));
      return ForEach(
          ctx, dims.size(),
          NormalizeGradElement<T>{loops, moments, /*part=*/1, of_sets, from, dy, scale, dx});
    }
    WEFT_RETURN_IF_ERROR(ReduceTo(ctx, dims.all, dims.set, Sums{0, 0},
                                  LoadSums<T>{loops, moments, from, dy, scale}, AddSums(), &scratch,
                                  StoreSums{of_sets}));
    const double part = moments_of_x ? 1.0 / static_cast<double>(dims.set_size()) : 0;
    return ForEach(ctx, dims.size(),
                   NormalizeGradElement<T>{loops, moments, part, of_sets, from, dy, scale, dx});
  }
};

// --- layer_norm, group_norm, instance_norm -------------------------------------------------------

// How an op of one kind groups the elements of X.
using GroupX = std::function<NormDims(const Dims& x)>;

GroupX LayerNormGroups(const KernelSpec& spec) {
  return [begin = spec.attrs.Int("begin_norm_axis")](const Dims& x) -> NormDims {
    const auto dims = absl::MakeConstSpan(x);
    const int64_t rows = NumElements(dims.first(begin)), columns = NumElements(dims.subspan(begin));
    return {{rows, columns}, {rows, 1}, {1, columns}};
  };
}

// The dims of X with one dimension of space.
struct Image {
  int64_t batch, channels, space = 1;

  Image(const Dims& dims, bool channels_last)
      : batch(dims[0]), channels(channels_last ? dims.back() : dims[1]) {
    const size_t first = channels_last ? 1 : 2;
    for (size_t i = 0; i + 2 < dims.size(); ++i) space *= dims[first + i];
  }
};

// The channels of an image are split into groups; each group is a set.
NormDims ByGroup(const Image& x, bool channels_last, int64_t groups) {
  // An image without channels has none.
  const int64_t width = groups == 0 ? 0 : x.channels / groups;
  if (channels_last) {
    return {{x.batch, x.space, groups, width}, {x.batch, 1, groups, 1}, {1, 1, groups, width}};
  }
  return {{x.batch, groups, width, x.space}, {x.batch, groups, 1, 1}, {1, groups, width, 1}};
}

bool ChannelsLast(const KernelSpec& spec) { return spec.attrs.String("data_layout") == "NHWC"; }

GroupX GroupNormGroups(const KernelSpec& spec) {
  return [last = ChannelsLast(spec), groups = spec.attrs.Int("groups")](const Dims& x) {
    return ByGroup(Image(x, last), last, groups);
  };
}

GroupX InstanceNormGroups(const KernelSpec&) {
  return [](const Dims& x) {
    const Image image(x, /*channels_last=*/false);
    return ByGroup(image, false, image.channels);
  };
}

// What an op keeps for its gradient op besides the mean, and in which slot.
struct Kept {
  const char *mean, *variance;
  bool is_inverse_deviation;
};
constexpr Kept kVariance = {"Mean", "Variance", false};
constexpr Kept kInverseDeviation = {"SavedMean", "SavedVariance", true};

template <GroupX (*groups)(const KernelSpec&)>
absl::StatusOr<Kernel> Forward(OpKernel op, const Kept& kept) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias");
  const Out y = op.out("Y"), mean = op.out(kept.mean), variance = op.out(kept.variance);
  const double epsilon = op.attrs().Float("epsilon");
  return op.Make(
      Floats(x),
      [=, group = groups(op.spec()), buffers = std::make_shared<MomentBuffers>()](
          const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const NormDims dims = group(x(ctx).dims());
        WEFT_ASSIGN_OR_RETURN(const Loops loops, dims.MakeLoops());
        WEFT_RETURN_IF_ERROR(buffers->Compute<T>(ctx, dims, x(ctx)));
        const Moments<double> moments{buffers->mean.data<double>(),
                                      buffers->variance.data<double>(), epsilon, false};
        WEFT_RETURN_IF_ERROR(ForEach(
            ctx, dims.sets(),
            WriteMoments<T, double>{moments, kept.is_inverse_deviation, mean.data_or_null<T>(ctx),
                                    variance.data_or_null<T>(ctx)}));
        return ForEach(
            ctx, dims.size(),
            NormalizeElement<T>{loops, moments, x.data<T>(ctx), scale.data_or_null<T>(ctx),
                                bias.data_or_null<T>(ctx), y.data<T>(ctx)});
      });
}

template <GroupX (*groups)(const KernelSpec&)>
absl::StatusOr<Kernel> Backward(OpKernel op, const Kept& kept) {
  const In x = op.in("X"), dy = op.in("Y@GRAD"), scale = op.in("Scale");
  const In mean = op.in(kept.mean), variance = op.in(kept.variance);
  op.Ignore({"Bias", "Y"});
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  const double epsilon = op.attrs().Float("epsilon");
  return op.Make(
      Floats(x), [=, group = groups(op.spec()), buffers = std::make_shared<GradientBuffers>()](
                     const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const Moments<T> moments{mean.data<T>(ctx), variance.data<T>(ctx), epsilon,
                                 kept.is_inverse_deviation};
        return buffers->Run<T>(ctx, group(x(ctx).dims()), moments, /*moments_of_x=*/true, x(ctx),
                               dy.data<T>(ctx), scale.data_or_null<T>(ctx), dx.data_or_null<T>(ctx),
                               dscale.data_or_null<T>(ctx), dbias.data_or_null<T>(ctx));
      });
}

template <GroupX (*groups)(const KernelSpec&)>
void AddNorm(KernelTable* table, const std::string& type, const Kept& kept) {
  table->Add(
      type, [&kept](const KernelSpec& spec) { return Forward<groups>(spec, kept); },
      [&kept](const KernelSpec& spec) { return Backward<groups>(spec, kept); });
}

// --- batch_norm ----------------------------------------------------------------------------------

// A set is a channel.
NormDims ByChannel(const Dims& x, bool channels_last) {
  const Image image(x, channels_last);
  if (channels_last) {
    const Dims channels = {1, image.channels};
    return {{image.batch * image.space, image.channels}, channels, channels};
  }
  const Dims channels = {1, image.channels, 1};
  return {{image.batch, image.channels, image.space}, channels, channels};
}

// to = momentum old + (1 - momentum) now, or old; the variance of now times n / (n - 1), if
// is_unbiased, of the n elements that the sums of all ranks count, or n.
template <typename T>
struct MixMoments {
  double keep;
  bool mixes, is_unbiased;
  const T *mean, *variance;
  const double *now_mean, *now_variance;
  T *to_mean, *to_variance;  // may be null
  double n;
  const double* sums;  // null: there are none
  int64_t ranks, stride;
  WEFT_DEVICE double Unbias() const {
    double count = n;
    for (int64_t r = 0; sums != nullptr && r < ranks; ++r) count += sums[(r + 1) * stride - 1];
    return is_unbiased && count > 1 ? count / (count - 1) : 1;
  }
  WEFT_DEVICE T Mix(const T* old, double now, int64_t c) const {
    return mixes ? static_cast<T>(keep * old[c] + (1 - keep) * now) : old[c];
  }
  WEFT_DEVICE void operator()(int64_t c) const {
    if (to_mean != nullptr) to_mean[c] = Mix(mean, now_mean[c], c);
    if (to_variance != nullptr) to_variance[c] = Mix(variance, Unbias() * now_variance[c], c);
  }
};

template <typename T>
struct Widen {
  const T *mean, *variance;
  double *to_mean, *to_variance;
  WEFT_DEVICE void operator()(int64_t c) const {
    to_mean[c] = mean[c];
    to_variance[c] = variance[c];
  }
};

// What ranks give each other: see ops/sums_of_ranks.h.
struct WriteMomentSums {
  int64_t channels;
  double n;
  const double *mean, *variance;
  double* sums;
  WEFT_DEVICE void operator()(int64_t c) const {
    sums[c] = mean[c];
    sums[channels + c] = n * variance[c];
    if (c == 0) sums[2 * channels] = n;
  }
};

struct ReadMomentSums {
  int64_t channels, ranks;
  const double* sums;
  double *mean, *variance;
  WEFT_DEVICE void operator()(int64_t c) const {
    const int64_t stride = 2 * channels + 1;
    double n = 0, m = 0, v = 0;
    for (int64_t r = 0; r < ranks; ++r) n += sums[r * stride + 2 * channels];
    const double part = n > 0 ? 1 / n : 0;
    for (int64_t r = 0; r < ranks; ++r) {
      m += sums[r * stride + 2 * channels] * part * sums[r * stride + c];
    }
    for (int64_t r = 0; r < ranks; ++r) {
      const double distance = sums[r * stride + c] - m;
      v += sums[r * stride + channels + c] + sums[r * stride + 2 * channels] * distance * distance;
    }
    mean[c] = m;
    variance[c] = v * part;
  }
};

struct StoreGradSums {
  int64_t channels;
  double n;
  double* sums;
  WEFT_DEVICE void operator()(int64_t c, const Sums& of_channel) const {
    sums[c] = of_channel.g;
    sums[channels + c] = of_channel.gx;
    if (c == 0) sums[2 * channels] = n;
  }
};

// Normalizes by the moments of the batch, which are mixed into the running moments, or by the
// running moments, which then stay unchanged. As in Paddle, a batch of one element per channel is
// not normalized: Y = X. With Sums, the moments are those of the batches of all ranks.
absl::StatusOr<Kernel> BatchNorm(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias"), sums = op.in("Sums");
  const In mean = op.in("Mean"), variance = op.in("Variance");
  const Out y = op.out("Y"), mean_out = op.out("MeanOut"), variance_out = op.out("VarianceOut");
  const Out saved_mean = op.out("SavedMean"), saved_inverse = op.out("SavedVariance");
  const Out reserve_space = op.out("ReserveSpace");
  const OpAttrs& attrs = op.attrs();
  const bool uses_running = attrs.Bool("use_global_stats") ||
                            (attrs.Bool("is_test") && !attrs.Bool("trainable_statistics"));
  op.InPlace(mean_out, mean).InPlace(variance_out, variance);
  return MakeStep(
      op, x, sums,
      [=, last = ChannelsLast(op.spec()), epsilon = attrs.Float("epsilon"),
       keep = attrs.Float("momentum"), is_unbiased = attrs.Bool("unbiased_variance"),
       buffers = std::make_shared<MomentBuffers>()](const KernelContext& ctx,
                                                    auto zero) -> absl::Status {
        using T = decltype(zero);
        if (Tensor* unused = reserve_space.get(ctx)) unused->Resize(x(ctx).dtype(), {0});
        const NormDims dims = ByChannel(x(ctx).dims(), last);
        WEFT_ASSIGN_OR_RETURN(const Loops loops, dims.MakeLoops());
        const bool is_normalized = uses_running || sums || dims.set_size() > 1;
        const int64_t stride = 2 * dims.sets() + 1, ranks = sums ? sums(ctx).size() / stride : 0;
        buffers->Allocate(dims, x(ctx));
        double* const now_mean = buffers->mean.data<double>();
        double* const now_variance = buffers->variance.data<double>();
        if (uses_running) {  // before Mix, which may overwrite them
          WEFT_RETURN_IF_ERROR(
              ForEach(ctx, dims.sets(),
                      Widen<T>{mean.data<T>(ctx), variance.data<T>(ctx), now_mean, now_variance}));
        } else if (sums) {
          WEFT_RETURN_IF_ERROR(ForEach(
              ctx, dims.sets(),
              ReadMomentSums{dims.sets(), ranks, sums.data<double>(ctx), now_mean, now_variance}));
        } else {
          WEFT_RETURN_IF_ERROR(buffers->Compute<T>(ctx, dims, x(ctx)));
        }
        WEFT_RETURN_IF_ERROR(
            ForEach(ctx, dims.sets(),
                    MixMoments<T>{keep, !uses_running && is_normalized, is_unbiased,
                                  mean.data<T>(ctx), variance.data<T>(ctx), now_mean, now_variance,
                                  mean_out.data_or_null<T>(ctx), variance_out.data_or_null<T>(ctx),
                                  sums ? 0 : static_cast<double>(dims.set_size()),
                                  sums ? sums(ctx).data<double>() : nullptr, ranks, stride}));
        if (!is_normalized) {
          for (Tensor* saved : {saved_mean.get(ctx), saved_inverse.get(ctx)}) {
            if (saved != nullptr) WEFT_RETURN_IF_ERROR(Clear(ctx, saved->raw(), saved->bytes()));
          }
          return Copy(ctx, x(ctx).raw(), x(ctx).bytes(), y(ctx).raw());
        }
        const Moments<double> moments{now_mean, now_variance, epsilon, false};
        WEFT_RETURN_IF_ERROR(
            ForEach(ctx, dims.sets(),
                    WriteMoments<T, double>{moments, true, saved_mean.data_or_null<T>(ctx),
                                            saved_inverse.data_or_null<T>(ctx)}));
        return ForEach(ctx, dims.size(),
                       NormalizeElement<T>{loops, moments, x.data<T>(ctx), scale.data<T>(ctx),
                                           bias.data<T>(ctx), y.data<T>(ctx)});
      });
}

absl::StatusOr<Kernel> BatchNormGrad(OpKernel op) {
  const bool uses_running = op.attrs().Bool("use_global_stats") || op.attrs().Bool("is_test");
  // Running moments that were used are unchanged: MeanOut is Mean.
  const bool has_inputs = op.spec().Input("Mean") >= 0 && op.spec().Input("Variance") >= 0;
  const char* const kMean = !uses_running ? "SavedMean" : has_inputs ? "Mean" : "MeanOut";
  const char* const kVariance = !uses_running ? "SavedVariance"
                                : has_inputs  ? "Variance"
                                              : "VarianceOut";
  const In x = op.in("X"), dy = op.in("Y@GRAD"), scale = op.in("Scale"), sums = op.in("Sums");
  const In mean = op.in(kMean), variance = op.in(kVariance);
  op.Ignore({"Bias", "Mean", "MeanOut", "ReserveSpace", "SavedMean", "SavedVariance", "Variance",
             "VarianceOut"});
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  if (!mean || !variance) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs ", kMean, " and ", kVariance, ": missing"));
  }
  return MakeStep(
      op, x, sums,
      [=, last = ChannelsLast(op.spec()), epsilon = op.attrs().Float("epsilon"),
       buffers = std::make_shared<GradientBuffers>()](const KernelContext& ctx,
                                                      auto zero) -> absl::Status {
        using T = decltype(zero);
        const NormDims dims = ByChannel(x(ctx).dims(), last);
        if (!uses_running && !sums && dims.set_size() <= 1) {
          for (Tensor* gradient : {dscale.get(ctx), dbias.get(ctx)}) {
            if (gradient == nullptr) continue;
            WEFT_RETURN_IF_ERROR(Clear(ctx, gradient->raw(), gradient->bytes()));
          }
          if (dx.get(ctx) == nullptr) return absl::OkStatus();
          return Copy(ctx, dy(ctx).raw(), dy(ctx).bytes(), dx(ctx).raw());
        }
        const Moments<T> moments{mean.data<T>(ctx), variance.data<T>(ctx), epsilon, !uses_running};
        return buffers->Run<T>(ctx, dims, moments, !uses_running, x(ctx), dy.data<T>(ctx),
                               scale.data<T>(ctx), dx.data_or_null<T>(ctx),
                               dscale.data_or_null<T>(ctx), dbias.data_or_null<T>(ctx),
                               sums.get(ctx));
      });
}

// What a rank adds to the moments of all ranks.
absl::StatusOr<Kernel> MomentSums(OpKernel op) {
  const In x = op.in("X");
  const Out sums = op.out("Sums");
  return op.Make(Floats(x),
                 [=, last = ChannelsLast(op.spec()), buffers = std::make_shared<MomentBuffers>()](
                     const KernelContext& ctx, auto zero) -> absl::Status {
                   const NormDims dims = ByChannel(x(ctx).dims(), last);
                   WEFT_RETURN_IF_ERROR(buffers->Compute<decltype(zero)>(ctx, dims, x(ctx)));
                   return ForEach(
                       ctx, dims.sets(),
                       WriteMomentSums{dims.sets(), static_cast<double>(dims.set_size()),
                                       buffers->mean.data<double>(),
                                       buffers->variance.data<double>(), sums.data<double>(ctx)});
                 });
}

// What a rank adds to the gradient of moments of all ranks.
absl::StatusOr<Kernel> MomentGradSums(OpKernel op) {
  const In x = op.in("X"), dy = op.in("Y@GRAD");
  const In mean = op.in("SavedMean"), inverse = op.in("SavedVariance");
  const Out sums = op.out("Sums");
  return op.Make(Floats(x),
                 [=, last = ChannelsLast(op.spec()), scratch = std::make_shared<Tensor>()](
                     const KernelContext& ctx, auto zero) -> absl::Status {
                   using T = decltype(zero);
                   const NormDims dims = ByChannel(x(ctx).dims(), last);
                   WEFT_ASSIGN_OR_RETURN(const Loops loops, dims.MakeLoops());
                   ScratchLike(x(ctx), scratch.get());
                   const Moments<T> moments{mean.data<T>(ctx), inverse.data<T>(ctx), 0, true};
                   return ReduceTo(
                       ctx, dims.all, dims.channel, Sums{0, 0},
                       LoadSums<T>{loops, moments, x.data<T>(ctx), dy.data<T>(ctx), nullptr},
                       AddSums(), scratch.get(),
                       StoreGradSums{dims.sets(), static_cast<double>(dims.set_size()),
                                     sums.data<double>(ctx)});
                 });
}

}  // namespace

void AddGpuNormKernels(KernelTable* table) {
  AddNorm<LayerNormGroups>(table, "layer_norm", kVariance);
  AddNorm<GroupNormGroups>(table, "group_norm", kVariance);
  AddNorm<InstanceNormGroups>(table, "instance_norm", kInverseDeviation);
  table->Add("batch_norm", BatchNorm, BatchNormGrad);
  table->Add("sync_batch_norm", BatchNorm, BatchNormGrad);
  table->Add("sync_batch_norm_sums", MomentSums);
  table->Add("sync_batch_norm_grad_sums", MomentGradSums);
}

}  // namespace weft
