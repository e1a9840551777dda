// Features of image regions: every region, of any size, becomes pooled_height × pooled_width bins.
// Regions are boxes (left, top, right, bottom) in ROIs; multiplied by spatial_scale they are in
// coordinates of X. RoisNum has the number of consecutive regions per image.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The largest number of samples of a bin along a side. Larger boxes are errors, and so are boxes
// that are NaN.
constexpr double kMostSamples = 4096;
constexpr int64_t kLargestRatio = 64;

// The slots and attributes of all ops.
struct Regions {
  In x, rois, rois_num;
  int64_t height, width;  // in bins
  float scale;

  Regions(const OpAttrs& attrs, OpKernel* op)
      : x(op->in("X")),
        rois(op->in("ROIs")),
        rois_num(op->in("RoisNum")),
        height(attrs.Int("pooled_height")),
        width(attrs.Int("pooled_width")),
        scale(static_cast<float>(attrs.Float("spatial_scale"))) {}

  int64_t bins() const { return height * width; }

  // The image of each region.
  absl::StatusOr<std::vector<int64_t>> Images(const KernelContext& ctx) const {
    if (!rois_num) {
      return absl::UnimplementedError(
          "input RoisNum: no kernel for regions without it, of level-of-detail offsets");
    }
    const int64_t count = rois(ctx).dim(0);
    WEFT_RETURN_IF_ERROR(CheckSize("RoisNum", rois_num(ctx), x(ctx).dim(0)));
    WEFT_ASSIGN_OR_RETURN(const auto counts, ReadIndices("RoisNum", rois_num(ctx), count + 1));
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (total != count) {
      return absl::InvalidArgumentError(
          absl::StrCat("input RoisNum: ", total, " regions, but ROIs has ", count));
    }
    std::vector<int64_t> images;
    for (size_t n = 0; n < counts.size(); ++n) images.insert(images.end(), counts[n], n);
    return images;
  }
};

absl::Status BoxError(int64_t region) {
  return absl::InvalidArgumentError(
      absl::StrCat("input ROIs: region ", region, " is not finite, or too large"));
}

// A point between four elements of an image, and their weights: 0 if the point is more than one
// element outside.
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

// A bin is the mean of samples inside it, each interpolated from four elements of X. A side has
// sampling_ratio samples, or one for each element. With `aligned`, pixel centers are at a half.
struct RoiAlign : Regions {
  int64_t ratio;
  bool aligned;
  bool widens;  // regions that are narrower than an element. (Paddle's gradient always does.)

  RoiAlign(const KernelSpec& spec, OpKernel* op, bool is_grad)
      : Regions(spec.attrs, op),
        ratio(spec.attrs.Int("sampling_ratio")),
        aligned(spec.attrs.Bool("aligned")),
        widens(!aligned || (spec.paddle_cpu_quirks && is_grad)) {}

  // Calls begin(region, bin, samples) for every bin, which is a position in a channel of Out, of
  // every region, and then visit(image, sample) for its samples.
  template <typename T, typename Begin, typename Visit>
  absl::Status ForEachSample(const KernelContext& ctx, Begin begin, Visit visit) const {
    WEFT_ASSIGN_OR_RETURN(const auto images, Images(ctx));
    const int64_t image_height = x(ctx).dim(2), image_width = x(ctx).dim(3);
    const T shift = aligned ? T(0.5) : T(0);
    for (int64_t r = 0; r < rois(ctx).dim(0); ++r) {
      const T* box = rois.data<T>(ctx) + r * 4;
      const T left = box[0] * scale - shift, top = box[1] * scale - shift;
      T region_width = box[2] * scale - shift - left, region_height = box[3] * scale - shift - top;
      if (widens) {
        region_width = std::max(region_width, T(1));
        region_height = std::max(region_height, T(1));
      }
      const T bin_height = region_height / height, bin_width = region_width / width;
      if (!std::isfinite(left + top) || !(std::fabs(bin_height) <= kMostSamples) ||
          !(std::fabs(bin_width) <= kMostSamples)) {
        return BoxError(r);
      }
      const int64_t rows = ratio > 0 ? ratio : std::max<int64_t>(std::ceil(bin_height), 0);
      const int64_t columns = ratio > 0 ? ratio : std::max<int64_t>(std::ceil(bin_width), 0);
      for (int64_t bin = 0; bin < bins(); ++bin) {
        begin(r, bin, rows * columns);
        const int64_t row = bin / width, column = bin % width;
        const auto ys = Inside(top + bin_height * row, bin_height, rows, image_height);
        const auto xs = Inside(left + bin_width * column, bin_width, columns, image_width);
        for (T y : ys) {
          for (T at : xs) visit(images[r], Sample<T>(y, at, image_height, image_width));
        }
      }
    }
    return absl::OkStatus();
  }

  // The positions of this many samples of a bin along one side, without those of weight 0.
  template <typename T>
  static std::vector<T> Inside(T begin, T bin_size, int64_t samples, int64_t size) {
    std::vector<T> positions;
    for (int64_t i = 0; i < samples; ++i) {
      const T at = begin + bin_size * ((i + T(0.5)) / samples);
      if (at >= -1 && at <= size) positions.push_back(at);
    }
    return positions;
  }
};

// Out is the mean of samples, 0 for a region without extent, which has none. (Paddle's is NaN.) The
// gradient adds Out@GRAD to the elements of each sample.
template <bool is_grad>
absl::StatusOr<Kernel> RoiAlignKernel(OpKernel op) {
  const RoiAlign align(op.spec(), &op, is_grad);
  if (align.ratio > kLargestRatio) {
    return absl::UnimplementedError(absl::StrCat("attribute sampling_ratio: expected at most ",
                                                 kLargestRatio, ", found ", align.ratio));
  }
  const In x = align.x, dout = is_grad ? op.in("Out@GRAD") : In();
  const Out out = op.out(is_grad ? "X@GRAD" : "Out");
  const bool is_paddles = op.spec().paddle_cpu_quirks;
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t channels = x(ctx).dim(1), size = x(ctx).dim(2) * x(ctx).dim(3);
    const int64_t bins = align.bins();
    const T *xs = x.data<T>(ctx), *douts = dout.data_or_null<T>(ctx);
    T* const outs = out.data<T>(ctx);
    std::fill_n(outs, out(ctx).size(), T(0));
    int64_t first = 0;  // of the bin, in the first channel
    T part = 0;
    return align.ForEachSample<T>(
        ctx,
        [&](int64_t region, int64_t bin, int64_t samples) {
          first = region * channels * bins + bin;
          part = T(1) / static_cast<T>(std::max<int64_t>(samples, 1));
          if (is_grad || samples > 0 || !is_paddles) return;
          for (int64_t c = 0; c < channels; ++c) {
            outs[first + c * bins] = std::numeric_limits<T>::quiet_NaN();
          }
        },
        [&](int64_t image, const Sample<T>& sample) {
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t channel = (image * channels + c) * size;
            T value = 0;
            for (int k = 0; k < 4; ++k) {
              const int64_t i = channel + sample.at[k];
              if constexpr (is_grad) {
                outs[i] += sample.weight[k] * douts[first + c * bins] * part;
              } else {
                value += sample.weight[k] * xs[i];
              }
            }
            if constexpr (!is_grad) outs[first + c * bins] += value * part;
          }
        });
  });
}

// The elements of X in bin i of `bins`, for a region that begins at `first`.
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

// Out is the maximum of a bin, Argmax its index in the channel; 0 and -1 for an empty bin. Boxes
// are rounded to elements, and have at least one.
absl::StatusOr<Kernel> RoiPool(OpKernel op) {
  const Regions regions(op.attrs(), &op);
  const In x = regions.x;
  const Out out = op.out("Out"), argmax = op.out("Argmax");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto images, regions.Images(ctx));
    const int64_t channels = x(ctx).dim(1), height = x(ctx).dim(2), width = x(ctx).dim(3);
    T* to = out.data<T>(ctx);
    int64_t* arg = argmax.data<int64_t>(ctx);
    for (int64_t r = 0; r < regions.rois(ctx).dim(0); ++r) {
      std::array<int64_t, 4> box{};
      for (int k = 0; k < 4; ++k) {
        const T position = std::round(regions.rois.data<T>(ctx)[r * 4 + k] * regions.scale);
        if (!(std::fabs(position) <= kMostSamples * kMostSamples)) return BoxError(r);
        box[k] = static_cast<int64_t>(position);
      }
      const int64_t columns = std::max<int64_t>(box[2] - box[0] + 1, 1);
      const int64_t rows = std::max<int64_t>(box[3] - box[1] + 1, 1);
      for (int64_t c = 0; c < channels; ++c) {
        const T* from = x.data<T>(ctx) + (images[r] * channels + c) * height * width;
        for (int64_t bin = 0; bin < regions.bins(); ++bin, ++to, ++arg) {
          const Range ys(bin / regions.width, regions.height, box[1], rows, height);
          const Range xs(bin % regions.width, regions.width, box[0], columns, width);
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

absl::StatusOr<Kernel> RoiPoolGrad(OpKernel op) {
  const Regions regions(op.attrs(), &op);
  const In x = regions.x;
  const In argmax = op.in("Argmax"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto images, regions.Images(ctx));
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
  table->Add("roi_align", RoiAlignKernel</*is_grad=*/false>);
  table->Add("roi_align_grad", RoiAlignKernel</*is_grad=*/true>);
  table->Add("roi_pool", RoiPool);
  table->Add("roi_pool_grad", RoiPoolGrad);
}

}  // namespace weft
