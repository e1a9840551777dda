// Ops for which the elements of a channel are a set (ops/cpu/normalize.h): batch_norm, and
// affine_channel, which scales them.
//
// If channels come last, sums are in double precision, and the rest is in that of X, which takes
// two thirds of the time. oneDNN's batch normalization is slower (docs/benchmarks.md).
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/columns.h"
#include "ops/cpu/families.h"
#include "ops/cpu/normalize.h"
#include "ops/op_kernel.h"
#include "ops/sums_of_ranks.h"

namespace weft {
namespace {

// Normalizes the channels of X, which are the columns of a matrix if they come last. Keeps buffers,
// so that a step allocates nothing.
class ChannelNorm {
 public:
  explicit ChannelNorm(const KernelSpec& spec) : channels_last_(ChannelsLast(spec)) {}

  void SetX(const Dims& dims) {
    const NormImage x(dims, channels_last_);
    has_columns_ = x.channels_last || x.space == 1;
    channels_ = x.channels;
    channel_size_ = x.batch * x.space;
    if (has_columns_) return columns_.SetSize(channel_size_, channels_);
    planes_ = {{1, x.batch, x.channels, x.space}, {0, 0, 1, 0}, {0, 0, 1, 0}};
  }

  // For elements of type T of these dims: the buffers, before the first step.
  template <typename T>
  void Reserve(const Dims& dims) {
    SetX(dims);
    SetMoments(0, 0);
    const auto reserve = [this](auto* numbers) { numbers->resize(columns_.width()); };
    if (has_columns_) {
      columns_.ReserveSums(2);
      reserve(&tiles_[0]);
      for (auto& tile : Tiles(ParameterOf<T>())) reserve(&tile);
      return;
    }
    buffers_.run_sums.resize(2 * planes_.num_runs());
    for (auto* sums : {&buffers_.g, &buffers_.gx, &buffers_.dy, &buffers_.dyx}) {
      sums->resize(channels_);
    }
  }

  // Elements of a channel.
  int64_t channel_size() const { return channel_size_; }
  NormMoments& moments() { return moments_; }

  // The moments become those of X.
  template <typename T>
  void SetMoments(const T* x) {
    if (!has_columns_) return moments_.SetTo(planes_, x, &buffers_);
    moments_.mean.assign(channels_, 0);
    moments_.variance.assign(channels_, 0);
    if (channel_size_ > 0) SetMomentsOfColumns(x);
  }

  void SetMoments(double mean, double variance) {
    moments_.mean.assign(channels_, mean);
    moments_.variance.assign(channels_, variance);
  }

  // Writes the mean of each channel, then the sum of the squared distances to it, then the number
  // of elements of a channel.
  template <typename T>
  void SumMoments(const T* x, double* sums) {
    SetMoments(x);
    for (int64_t c = 0; c < channels_; ++c) {
      sums[c] = moments_.mean[c];
      sums[channels_ + c] = channel_size_ * moments_.variance[c];
    }
    sums[2 * channels_] = channel_size_;
  }
  // The moments become those of the elements of all ranks, each of which gives such sums.
  void SetMomentsOfRanks(const Tensor& sums) {
    const SumsOfRanks of(sums, channels_);
    SetMoments(0, 0);
    for (int64_t c = 0; c < channels_ && of.count() > 0; ++c) {
      double &mean = moments_.mean[c], &variance = moments_.variance[c];
      for (int r = 0; r < of.ranks(); ++r) mean += of.count(r) / of.count() * of.at(r, 0, c);
      for (int r = 0; r < of.ranks(); ++r) {
        const double distance = of.at(r, 0, c) - mean;
        variance += of.at(r, 1, c) + of.count(r) * distance * distance;
      }
      variance /= of.count();
    }
  }

  // The variance of the moments is the inverse of the deviation.
  template <typename T>
  void Normalize(const T* x, const ParameterOf<T>* scale, const ParameterOf<T>* bias, T* y) {
    using P = ParameterOf<T>;
    const std::vector<double>&mean = moments_.mean, &inverse_deviation = moments_.variance;
    if (!has_columns_) return weft::Normalize(planes_, x, mean, inverse_deviation, scale, bias, y);
    auto& [centers, factors, shifts, unused] = Tiles(P());
    const auto factor = [&](int64_t c) { return inverse_deviation[c] * scale[c]; };
    columns_.Tile([&](int64_t c) { return mean[c]; }, &centers);
    columns_.Tile(factor, &factors);
    columns_.Tile([&](int64_t c) { return bias[c] - Lost<P>(mean[c]) * factor(c); }, &shifts);
    columns_.ForEach<T>(
        [x, y, center = centers.data(), factor = factors.data(), shift = shifts.data()](
            int64_t i, int64_t j) { y[i] = T((x[i] - center[j]) * factor[j] + shift[j]); });
  }

  // Likewise. Null skips a gradient. `sums`: what all ranks give by SumGradient; null: the moments
  // are as moments_of says.
  template <typename T>
  void Gradient(const T* x, const T* dy, MomentsOf moments_of, const ParameterOf<T>* scale,
                const Tensor* sums, Tensor* dx, Tensor* dscale, Tensor* dbias) {
    if (sums != nullptr) AddUpRanks(SumsOfRanks(*sums, channels_));
    const std::vector<double>* const of_ranks = sums == nullptr ? nullptr : &of_ranks_;
    if (has_columns_) {
      return GradientOfColumns(x, dy, moments_of, scale, of_ranks, dx, dscale, dbias);
    }
    NormalizeGrad(planes_, x, dy, moments_.mean, moments_.variance, moments_of, scale, of_ranks, dx,
                  dscale, dbias, &buffers_);
  }

  // Writes Σdy and Σ(dy x̂) of each channel, and the number of its elements.
  template <typename T>
  void SumGradient(const T* x, const T* dy, double* sums) {
    const std::vector<double>&mean = moments_.mean, &inverse_deviation = moments_.variance;
    if (has_columns_) {
      SumColumns(x, dy);
    } else {
      SumGradients<T>(planes_, x, dy, mean, inverse_deviation, nullptr, &buffers_);
    }
    for (int64_t c = 0; c < channels_; ++c) {
      sums[c] = has_columns_ ? columns_.sum(0, c) : buffers_.dy[c];
      sums[channels_ + c] =
          has_columns_ ? columns_.sum(1, c) * inverse_deviation[c] : buffers_.dyx[c];
    }
    sums[2 * channels_] = channel_size_;
  }

 private:
  // The sums of the ranks' parts: channel by channel Σdy, then Σ(dy x̂), then the number of
  // elements.
  void AddUpRanks(const SumsOfRanks& of) {
    of_ranks_.assign(2 * channels_ + 1, 0);
    for (int r = 0; r < of.ranks(); ++r) {
      for (int64_t c = 0; c < channels_; ++c) {
        of_ranks_[c] += of.at(r, 0, c);
        of_ranks_[channels_ + c] += of.at(r, 1, c);
      }
    }
    of_ranks_[2 * channels_] = of.count();
  }

  template <typename T>
  using TilesOf = std::array<std::vector<T>, 4>;
  TilesOf<double>& Tiles(double) { return tiles_; }
  TilesOf<float>& Tiles(float) { return float_tiles_; }

  // What x loses as a number of type T. Formulas add it elsewhere: a mean far from 0 loses much,
  // compared with the distances to it.
  template <typename T>
  static double Lost(double x) {
    return x - static_cast<T>(x);
  }

  // In one pass: the squares of distances to the first row, whose precision does not suffer from a
  // mean far from 0.
  template <typename T>
  void SetMomentsOfColumns(const T* x) {
    std::vector<double>& first = tiles_[0];
    columns_.Tile([x](int64_t c) { return x[c]; }, &first);
    columns_.Sum<T, 2>([x, first = first.data()](int64_t i, int64_t j) {
      const double distance = x[i] - first[j];
      return std::array<double, 2>{distance, distance * distance};
    });
    const auto count = static_cast<double>(channel_size_);
    for (int64_t c = 0; c < channels_; ++c) {
      const double distance = columns_.sum(0, c) / count;
      moments_.mean[c] = first[c] + distance;
      moments_.variance[c] = std::max(columns_.sum(1, c) / count - distance * distance, 0.0);
    }
  }

  // Σdy and Σ(dy (x - mean)).
  template <typename T>
  void SumColumns(const T* x, const T* dy) {
    columns_.Tile([&](int64_t c) { return moments_.mean[c]; }, &tiles_[0]);
    columns_.Sum<T, 2>([x, dy, center = tiles_[0].data()](int64_t i, int64_t j) {
      return std::array<double, 2>{dy[i], dy[i] * (x[i] - center[j])};
    });
  }

  template <typename T>
  void GradientOfColumns(const T* x, const T* dy, MomentsOf moments_of, const ParameterOf<T>* scale,
                         const std::vector<double>* of_ranks, Tensor* dx, Tensor* dscale,
                         Tensor* dbias) {
    using P = ParameterOf<T>;
    const std::vector<double>&mean = moments_.mean, &inverse_deviation = moments_.variance;
    SumColumns(x, dy);
    for (int64_t c = 0; c < channels_; ++c) {
      if (dbias != nullptr) dbias->data<P>()[c] = static_cast<P>(columns_.sum(0, c));
      if (dscale == nullptr) continue;
      dscale->data<P>()[c] = static_cast<P>(columns_.sum(1, c) * inverse_deviation[c]);
    }
    if (dx == nullptr) return;
    const double part = of_ranks != nullptr           ? 1 / of_ranks->back()
                        : moments_of == MomentsOf::kX ? 1.0 / channel_size_
                                                      : 0;
    // Σdy and Σ(dy (x - mean)).
    const auto dy_sum = [&](int64_t c) {
      return of_ranks != nullptr ? (*of_ranks)[c] : columns_.sum(0, c);
    };
    const auto dyx_sum = [&](int64_t c) {
      return of_ranks != nullptr ? (*of_ranks)[channels_ + c] / inverse_deviation[c]
                                 : columns_.sum(1, c);
    };
    const auto dy_factor = [&](int64_t c) { return inverse_deviation[c] * scale[c]; };
    const auto x_factor = [&](int64_t c) {
      const double inverse = inverse_deviation[c];
      return -part * dy_factor(c) * dyx_sum(c) * inverse * inverse;
    };
    const auto shift = [&](int64_t c) {
      return -part * dy_factor(c) * dy_sum(c) - Lost<P>(mean[c]) * x_factor(c);
    };
    auto& [means, dy_factors, x_factors, shifts] = Tiles(P());
    columns_.Tile([&](int64_t c) { return mean[c]; }, &means);
    columns_.Tile(dy_factor, &dy_factors);
    columns_.Tile(x_factor, &x_factors);
    columns_.Tile(shift, &shifts);
    columns_.ForEach<T>([x, dy, to = dx->data<T>(), center = means.data(),
                         dy_factor = dy_factors.data(), x_factor = x_factors.data(),
                         shift = shifts.data()](int64_t i, int64_t j) {
      to[i] = T(dy_factor[j] * dy[i] + x_factor[j] * (x[i] - center[j]) + shift[j]);
    });
  }

  bool channels_last_, has_columns_ = false;
  int64_t channels_ = 0, channel_size_ = 0;
  NormMoments moments_;
  std::vector<double> of_ranks_;
  Columns columns_;        // if the channels are columns
  TilesOf<double> tiles_;  // by column of a long row
  TilesOf<float> float_tiles_;
  Grouping planes_ = {};  // if they are not
  NormBuffers buffers_;
};

// A step for OpKernel::Make: step(norm, ctx, T()), with the same norm in every step.
template <typename Step>
auto WithNorm(const KernelSpec& spec, Step step) {
  return [=, norm = ChannelNorm(spec)](const KernelContext& ctx, auto zero) mutable {
    return step(norm, ctx, zero);
  };
}

// The same for X of known dims: the norm has its buffers before the first step.
template <typename Step>
auto WithReservedNorm(const KernelSpec& spec, In x, Step step) {
  return [=, norm = ChannelNorm(spec)](const KernelContext& types, auto zero) {
    ChannelNorm reserved = norm;
    reserved.Reserve<decltype(zero)>(x(types).dims());
    return [=, norm = std::move(reserved)](const KernelContext& ctx) mutable {
      return step(norm, ctx, zero);
    };
  };
}

// --- batch_norm ----------------------------------------------------------------------------------

// Normalizes by the moments of the batch, which are mixed into the running moments,
//   MeanOut = momentum Mean + (1 - momentum) mean(X), VarianceOut likewise,
// or by the running moments, which then stay unchanged. As in Paddle, a batch of one element per
// channel is not normalized: Y = X. With Sums, the moments are those of the batches of all ranks.
// With unbiased_variance, the running variance is mixed with n / (n - 1) times that of n elements.
absl::StatusOr<Kernel> BatchNorm(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias"), sums = op.in("Sums");
  const In mean = op.in("Mean"), variance = op.in("Variance");
  const Out y = op.out("Y"), mean_out = op.out("MeanOut"), variance_out = op.out("VarianceOut");
  const Out saved_mean = op.out("SavedMean"), saved_inverse = op.out("SavedVariance");
  const Out reserve_space = op.out("ReserveSpace");
  const OpAttrs& attrs = op.attrs();
  const bool uses_running = attrs.Bool("use_global_stats") ||
                            (attrs.Bool("is_test") && !attrs.Bool("trainable_statistics"));
  const auto step = [=, epsilon = attrs.Float("epsilon"), keep = attrs.Float("momentum"),
                     is_unbiased = attrs.Bool("unbiased_variance")](
                        ChannelNorm& norm, const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    using P = ParameterOf<T>;
    if (Tensor* unused = reserve_space.get(ctx)) unused->Resize(x(ctx).dtype(), {0});
    norm.SetX(x(ctx).dims());
    NormMoments& moments = norm.moments();
    const bool is_normalized = uses_running || sums || norm.channel_size() > 1;
    if (uses_running) {
      moments.SetTo<P>(mean(ctx), variance(ctx));
    } else if (sums) {
      norm.SetMomentsOfRanks(sums(ctx));
    } else if (is_normalized) {
      norm.SetMoments(x.data<T>(ctx));
    }
    const bool mixes = !uses_running && is_normalized;
    const double n = sums
                         ? SumsOfRanks(sums(ctx), static_cast<int64_t>(moments.mean.size())).count()
                         : static_cast<double>(norm.channel_size());
    const double unbias = is_unbiased && n > 1 ? n / (n - 1) : 1;
    const auto mix = [&](const In& old, const std::vector<double>& now, double scale, Tensor* to) {
      if (to == nullptr) return;
      const P* const from = old.data<P>(ctx);
      P* const mixed = to->data<P>();
      for (int64_t c = 0; c < to->size(); ++c) {
        const double m = mixes ? keep * from[c] + (1 - keep) * scale * now[c] : double{from[c]};
        mixed[c] = static_cast<P>(m);
      }
    };
    mix(mean, moments.mean, 1, mean_out.get(ctx));
    mix(variance, moments.variance, unbias, variance_out.get(ctx));
    if (!is_normalized) {
      std::copy_n(x.data<T>(ctx), x(ctx).size(), y.data<T>(ctx));
      for (Tensor* saved : {saved_mean.get(ctx), saved_inverse.get(ctx)}) {
        if (saved != nullptr) std::fill_n(saved->data<P>(), saved->size(), P(0));
      }
      return absl::OkStatus();
    }
    moments.InvertDeviation(epsilon);
    norm.Normalize(x.data<T>(ctx), scale.data<P>(ctx), bias.data<P>(ctx), y.data<T>(ctx));
    WriteNumbers<P>(moments.mean, saved_mean.get(ctx));
    WriteNumbers<P>(moments.variance, saved_inverse.get(ctx));
    return absl::OkStatus();
  };
  op.InPlace(mean_out, mean).InPlace(variance_out, variance);
  if (sums) return MakeStep(op, x, sums, WithNorm(op.spec(), step));
  return op.TakesBFloat16({x}).Make(FloatsAndBFloat16(x), WithReservedNorm(op.spec(), x, step));
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
  const auto step = [=, epsilon = op.attrs().Float("epsilon")](
                        ChannelNorm& norm, const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    using P = ParameterOf<T>;
    norm.SetX(x(ctx).dims());
    if (!uses_running && !sums && norm.channel_size() <= 1) {
      if (Tensor* to = dx.get(ctx)) std::copy_n(dy.data<T>(ctx), to->size(), to->data<T>());
      for (Tensor* gradient : {dscale.get(ctx), dbias.get(ctx)}) {
        if (gradient != nullptr) std::fill_n(gradient->data<P>(), gradient->size(), P(0));
      }
      return;
    }
    norm.moments().SetTo<P>(mean(ctx), variance(ctx));
    if (uses_running) norm.moments().InvertDeviation(epsilon);
    norm.Gradient(x.data<T>(ctx), dy.data<T>(ctx), uses_running ? MomentsOf::kOther : MomentsOf::kX,
                  scale.data<P>(ctx), sums.get(ctx), dx.get(ctx), dscale.get(ctx), dbias.get(ctx));
  };
  if (sums) return MakeStep(op, x, sums, WithNorm(op.spec(), step));
  return op.TakesBFloat16({x, dy}).Make(FloatsAndBFloat16(x), WithReservedNorm(op.spec(), x, step));
}

// What a rank adds to the moments of all ranks.
absl::StatusOr<Kernel> MomentSums(OpKernel op) {
  const In x = op.in("X");
  const Out sums = op.out("Sums");
  auto step = [=, norm = ChannelNorm(op.spec())](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    norm.SetX(x(ctx).dims());
    norm.SumMoments(x.data<T>(ctx), sums.data<double>(ctx));
  };
  return op.Make(Floats(x), std::move(step));
}

// What a rank adds to the gradient of moments of all ranks.
absl::StatusOr<Kernel> MomentGradSums(OpKernel op) {
  const In x = op.in("X"), dy = op.in("Y@GRAD");
  const In mean = op.in("SavedMean"), inverse = op.in("SavedVariance");
  const Out sums = op.out("Sums");
  auto step = [=, norm = ChannelNorm(op.spec())](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    norm.SetX(x(ctx).dims());
    norm.moments().SetTo<T>(mean(ctx), inverse(ctx));
    norm.SumGradient(x.data<T>(ctx), dy.data<T>(ctx), sums.data<double>(ctx));
  };
  return op.Make(Floats(x), std::move(step));
}

// --- affine_channel ------------------------------------------------------------------------------

// Out = Scale X + Bias, by channel: with mean 0 and deviation 1.
absl::StatusOr<Kernel> AffineChannel(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), bias = op.in("Bias");
  const Out out = op.out("Out");
  auto step = [=, norm = ChannelNorm(op.spec())](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    norm.SetX(x(ctx).dims());
    norm.SetMoments(0, 1);
    norm.Normalize(x.data<T>(ctx), scale.data<T>(ctx), bias.data<T>(ctx), out.data<T>(ctx));
  };
  return op.Make(Floats(x), std::move(step));
}

absl::StatusOr<Kernel> AffineChannelGrad(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dscale = op.out("Scale@GRAD"), dbias = op.out("Bias@GRAD");
  auto step = [=, norm = ChannelNorm(op.spec())](const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    norm.SetX(x(ctx).dims());
    norm.SetMoments(0, 1);
    norm.Gradient(x.data<T>(ctx), dout.data<T>(ctx), MomentsOf::kOther, scale.data<T>(ctx),
                  /*sums=*/nullptr, dx.get(ctx), dscale.get(ctx), dbias.get(ctx));
  };
  return op.Make(Floats(x), std::move(step));
}

}  // namespace

void AddBatchNormKernels(KernelTable* table) {
  // On several ranks, sync_batch_norm is three ops (ops/schema/across_ranks.h).
  table->Add("sync_batch_norm_sums", MomentSums);
  table->Add("sync_batch_norm_grad_sums", MomentGradSums);
  for (const char* type : {"batch_norm", "sync_batch_norm"}) {
    table->Add(type, BatchNorm, BatchNormGrad);
  }
  table->Add("affine_channel", AffineChannel, AffineChannelGrad);
}

}  // namespace weft
