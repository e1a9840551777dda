// Features of regions of images: every region, whatever its size, becomes pooled_height ×
// pooled_width bins. Regions are boxes (left, top, right, bottom) in ROIs, times spatial_scale
// those of X; RoisNum says how many of them, in order, belong to each image.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Samples of a bin along a side. Boxes beyond that are errors, as are those that are no numbers.
constexpr double kMostSamples = 4096;
constexpr int64_t kMostSamplingRatio = 64;

struct Pooling {
  int64_t height, width;
  float scale;

  explicit Pooling(const OpAttrs& attrs)
      : height(attrs.Int("pooled_height")),
        width(attrs.Int("pooled_width")),
        scale(static_cast<float>(attrs.Float("spatial_scale"))) {}
};

// The image of each region.
absl::StatusOr<std::vector<int64_t>> ImagesOf(const Tensor& x, const Tensor& rois,
                                              const Tensor& rois_num) {
  std::vector<int64_t> images;
  int64_t total = 0;
  WEFT_RETURN_IF_ERROR(CheckSize("RoisNum", rois_num, x.dim(0)));
  const auto count = [&](auto tag) -> absl::Status {
    const auto* counts = rois_num.data<typename decltype(tag)::type>();
    for (int64_t n = 0; n < rois_num.size(); ++n) {
      const int64_t rest = rois.dim(0) - total;
      if (counts[n] < 0 || counts[n] > rest) {
        return absl::InvalidArgumentError(absl::StrCat("input RoisNum: ", counts[n],
                                                       " regions of image ", n, ", where ROIs has ",
                                                       rest, " more"));
      }
      total += counts[n];
      images.insert(images.end(), counts[n], n);
    }
    return absl::OkStatus();
  };
  const absl::Status counted = ForElementType<int32_t, int64_t>("input RoisNum", rois_num, count);
  WEFT_RETURN_IF_ERROR(counted);
  if (total == rois.dim(0)) return images;
  return absl::InvalidArgumentError(
      absl::StrCat("input RoisNum: ", total, " regions, but ROIs has ", rois.dim(0)));
}

absl::Status BoxError(int64_t region) {
  return absl::InvalidArgumentError(
      absl::StrCat("input ROIs: region ", region, " is not finite, or too large"));
}

// --- roi_align -----------------------------------------------------------------------------------

// A place in an image between four elements, and the weights of these in it: 0 where the place is
// more than an element outside.
template <typename T>
struct Sample {
  std::array<int64_t, 4> at{};
  std::array<T, 4> weight{};

  Sample(T y, T x, int64_t height, int64_t width) {
    if (height == 0 || width == 0) return;
    if (!(y >= -1 && y <= height && x >= -1 && x <= width)) return;
    const auto [top, bottom, down] = Neighbors(y, height);
    const auto [left, right, across] = Neighbors(x, width);
    at = {top * width + left, top * width + right, bottom * width + left, bottom * width + right};
    weight = {(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across};
  }

 private:
  struct Pair {
    int64_t low, high;
    T fraction;  // of the way from low to high
  };
  static Pair Neighbors(T position, int64_t size) {
    position = std::max(position, T(0));
    const auto low = static_cast<int64_t>(position);
    if (low >= size - 1) return {size - 1, size - 1, T(0)};
    return {low, low + 1, position - low};
  }
};

// A bin is the mean of samples in its middle, sampling_ratio or as many as it has elements along
// each side, each between four elements of X. With `aligned` the middle of an element is at a half.
class RoiAlign {
 public:
  RoiAlign(const KernelSpec& spec, OpKernel* op, bool is_grad)
      : pooling_(spec.attrs),
        ratio_(spec.attrs.Int("sampling_ratio")),
        aligned_(spec.attrs.Bool("aligned")),
        widens_(!aligned_ || (spec.paddle_cpu_quirks && is_grad)),
        x_(op->in("X")),
        rois_(op->in("ROIs")),
        rois_num_(op->in("RoisNum")) {}

  In x() const { return x_; }

  // Calls begin(image, bin, samples) for every bin, which is a position in a channel of Out, of
  // every region, and then visit(image, bin, sample) for its samples.
  template <typename T, typename Begin, typename Visit>
  absl::Status ForEachSample(const KernelContext& ctx, Begin begin, Visit visit) const {
    const Tensor &x = x_(ctx), &rois = rois_(ctx);
    if (ratio_ > kMostSamplingRatio) {
      return absl::InvalidArgumentError(absl::StrCat("attribute sampling_ratio: expected up to ",
                                                     kMostSamplingRatio, ", found ", ratio_));
    }
    WEFT_ASSIGN_OR_RETURN(const auto images, ImagesOf(x, rois, rois_num_(ctx)));
    const T shift = aligned_ ? T(0.5) : T(0);
    for (int64_t r = 0; r < rois.dim(0); ++r) {
      const T* box = rois.data<T>() + r * 4;
      const T left = box[0] * pooling_.scale - shift, top = box[1] * pooling_.scale - shift;
      T width = box[2] * pooling_.scale - shift - left;
      T height = box[3] * pooling_.scale - shift - top;
      if (widens_) {
        width = std::max(width, T(1));
        height = std::max(height, T(1));
      }
      const T bin_height = height / pooling_.height, bin_width = width / pooling_.width;
      if (!std::isfinite(left + top) || !(std::fabs(bin_height) <= kMostSamples) ||
          !(std::fabs(bin_width) <= kMostSamples)) {
        return BoxError(r);
      }
      const int64_t rows = ratio_ > 0 ? ratio_ : std::max<int64_t>(std::ceil(bin_height), 0);
      const int64_t columns = ratio_ > 0 ? ratio_ : std::max<int64_t>(std::ceil(bin_width), 0);
      for (int64_t bin = 0; bin < pooling_.height * pooling_.width; ++bin) {
        begin(r, bin, rows * columns);
        const int64_t i = bin / pooling_.width, j = bin % pooling_.width;
        const auto ys = Inside(top + bin_height * i, bin_height, rows, x.dim(2));
        const auto xs = Inside(left + bin_width * j, bin_width, columns, x.dim(3));
        for (T y : ys) {
          for (T at : xs) visit(images[r], Sample<T>(y, at, x.dim(2), x.dim(3)));
        }
      }
    }
    return absl::OkStatus();
  }

  // The positions of so many samples of a bin along one side, without those that weigh nothing.
  template <typename T>
  static std::vector<T> Inside(T begin, T bin_size, int64_t samples, int64_t size) {
    std::vector<T> positions;
    for (int64_t i = 0; i < samples; ++i) {
      const T at = begin + bin_size * ((i + T(0.5)) / samples);
      if (at >= -1 && at <= size) positions.push_back(at);
    }
    return positions;
  }

  int64_t bins() const { return pooling_.height * pooling_.width; }

 private:
  Pooling pooling_;
  int64_t ratio_;
  bool aligned_;
  bool widens_;  // regions that are narrower than an element. (Paddle's gradient always does.)
  In x_, rois_, rois_num_;
};

// Of a region without extent, which has no samples, Out is 0. (Paddle's is not a number.)
absl::StatusOr<Kernel> RoiAlignForward(const KernelSpec& spec) {
  OpKernel op(spec);
  const RoiAlign align(spec, &op, /*is_grad=*/false);
  const In x = align.x();
  const Out out = op.out("Out");
  const bool is_paddles = spec.paddle_cpu_quirks;
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t channels = x(ctx).dim(1), size = x(ctx).dim(2) * x(ctx).dim(3);
    const int64_t bins = align.bins();
    T* to = nullptr;
    T part = 0;
    std::fill_n(out.data<T>(ctx), out(ctx).size(), T(0));
    return align.ForEachSample<T>(
        ctx,
        [&](int64_t region, int64_t bin, int64_t samples) {
          to = out.data<T>(ctx) + region * channels * bins + bin;
          part = T(1) / static_cast<T>(std::max<int64_t>(samples, 1));
          if (samples > 0 || !is_paddles) return;
          for (int64_t c = 0; c < channels; ++c) to[c * bins] = std::numeric_limits<T>::quiet_NaN();
        },
        [&](int64_t image, const Sample<T>& sample) {
          const T* from = x.data<T>(ctx) + image * channels * size;
          for (int64_t c = 0; c < channels; ++c, from += size) {
            T value = 0;
            for (int k = 0; k < 4; ++k) value += sample.weight[k] * from[sample.at[k]];
            to[c * bins] += value * part;
          }
        });
  });
}

absl::StatusOr<Kernel> RoiAlignGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const RoiAlign align(spec, &op, /*is_grad=*/true);
  const In x = align.x(), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t channels = x(ctx).dim(1), size = x(ctx).dim(2) * x(ctx).dim(3);
    const int64_t bins = align.bins();
    const T* from = nullptr;
    T part = 0;
    std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
    return align.ForEachSample<T>(
        ctx,
        [&](int64_t region, int64_t bin, int64_t samples) {
          from = dout.data<T>(ctx) + region * channels * bins + bin;
          part = T(1) / static_cast<T>(std::max<int64_t>(samples, 1));
        },
        [&](int64_t image, const Sample<T>& sample) {
          T* to = dx.data<T>(ctx) + image * channels * size;
          for (int64_t c = 0; c < channels; ++c, to += size) {
            for (int k = 0; k < 4; ++k)
              to[sample.at[k]] += sample.weight[k] * from[c * bins] * part;
          }
        });
  });
}

// --- roi_pool ------------------------------------------------------------------------------------

// Which elements of X are in bin i of `bins` of a region that begins at `first`.
struct Range {
  int64_t begin, end;

  Range(int64_t i, int64_t bins, int64_t first, int64_t extent, int64_t size) {
    const float width = static_cast<float>(extent) / static_cast<float>(bins);
    const auto at = [=](float position) {
      return std::clamp<int64_t>(static_cast<int64_t>(position) + first, 0, size);
    };
    begin = at(std::floor(static_cast<float>(i) * width));
    end = at(std::ceil(static_cast<float>(i + 1) * width));
  }
};

// Out is the largest element of a bin, Argmax its place in the channel; 0 and -1 of an empty bin.
// Boxes are rounded to elements, and have at least one.
absl::StatusOr<Kernel> RoiPool(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), rois = op.in("ROIs"), rois_num = op.in("RoisNum");
  const Out out = op.out("Out"), argmax = op.out("Argmax");
  const Pooling pooling(spec.attrs);
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto images, ImagesOf(x(ctx), rois(ctx), rois_num(ctx)));
    const int64_t channels = x(ctx).dim(1), height = x(ctx).dim(2), width = x(ctx).dim(3);
    T* to = out.data<T>(ctx);
    int64_t* arg = argmax.data<int64_t>(ctx);
    for (int64_t r = 0; r < rois(ctx).dim(0); ++r) {
      std::array<int64_t, 4> box{};
      for (int k = 0; k < 4; ++k) {
        const T position = std::round(rois.data<T>(ctx)[r * 4 + k] * pooling.scale);
        if (!(std::fabs(position) <= kMostSamples * kMostSamples)) return BoxError(r);
        box[k] = static_cast<int64_t>(position);
      }
      const int64_t columns = std::max<int64_t>(box[2] - box[0] + 1, 1);
      const int64_t rows = std::max<int64_t>(box[3] - box[1] + 1, 1);
      for (int64_t c = 0; c < channels; ++c) {
        const T* from = x.data<T>(ctx) + (images[r] * channels + c) * height * width;
        for (int64_t bin = 0; bin < pooling.height * pooling.width; ++bin, ++to, ++arg) {
          const Range ys(bin / pooling.width, pooling.height, box[1], rows, height);
          const Range xs(bin % pooling.width, pooling.width, box[0], columns, width);
          *to = 0;
          *arg = -1;
          for (int64_t y = ys.begin; y < ys.end; ++y) {
            for (int64_t i = y * width + xs.begin; i < y * width + xs.end; ++i) {
              if (*arg >= 0 && !(from[i] > *to)) continue;
              *to = from[i];
              *arg = i;
            }
          }
        }
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> RoiPoolGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), rois = op.in("ROIs"), rois_num = op.in("RoisNum");
  const In argmax = op.in("Argmax"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto images, ImagesOf(x(ctx), rois(ctx), rois_num(ctx)));
    const int64_t channels = x(ctx).dim(1), size = x(ctx).dim(2) * x(ctx).dim(3);
    const int64_t bins = dout(ctx).dim(2) * dout(ctx).dim(3);
    const int64_t* arg = argmax.data<int64_t>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    for (int64_t i = 0; i < dout(ctx).size(); ++i) {
      if (arg[i] < -1 || arg[i] >= size) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Argmax: ", arg[i], " is not in [-1, ", size, ")"));
      }
      const int64_t channel = i / bins % channels, region = i / bins / channels;
      if (arg[i] < 0) continue;
      to[(images[region] * channels + channel) * size + arg[i]] += dout.data<T>(ctx)[i];
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddRoiPoolingKernels(KernelTable* table) {
  table->Add("roi_align", RoiAlignForward);
  table->Add("roi_align_grad", RoiAlignGrad);
  table->Add("roi_pool", RoiPool);
  table->Add("roi_pool_grad", RoiPoolGrad);
}

}  // namespace weft
