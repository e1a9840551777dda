// Images resized.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

enum class Method { kNearest, kLinear, kCubic };

// What an element of the result is a sum of, along a dimension.
struct Tap {
  int64_t element;
  double weight;
};
using Taps = std::vector<Tap>;

// The weights of the cubic convolution with a = -0.75, of the elements around a place that lies t
// after the second of four.
std::array<double, 4> CubicWeights(double t) {
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// Of each of `out_size` elements along a dimension. As in Paddle: the corners of both images
// coincide (align_corners), or, for cubic interpolation, and linear with align_mode 0, the corners
// of their elements.
std::vector<Taps> Interpolated(const OpAttrs& attrs, Method method, size_t dimension,
                               int64_t in_size, int64_t out_size) {
  const bool aligned = attrs.Bool("align_corners");
  const bool by_halves = !aligned && (method == Method::kCubic ||
                                      (method == Method::kLinear && attrs.Int("align_mode") == 0));
  const std::vector<double> scales = attrs.Floats("scale");
  const double scale = scales.empty() ? 0 : scales[scales.size() == 1 ? 0 : dimension];
  float ratio = 0;  // in single precision, as the places that it leads to
  if (aligned) {
    if (out_size > 1) ratio = static_cast<float>(in_size - 1) / static_cast<float>(out_size - 1);
  } else {
    ratio = scale > 0 ? static_cast<float>(1 / scale)
                      : static_cast<float>(in_size) / static_cast<float>(out_size);
  }
  const auto inside = [&](int64_t i) { return std::clamp<int64_t>(i, 0, in_size - 1); };
  std::vector<Taps> result;
  for (int64_t k = 0; k < out_size; ++k) {
    const float at = static_cast<float>(k);
    float place = by_halves ? ratio * (at + 0.5f) - 0.5f : ratio * at;
    if (method != Method::kCubic) place = std::max(place, 0.0f);
    if (method == Method::kNearest && aligned) place += 0.5f;
    const auto low = static_cast<int64_t>(std::floor(place));
    const double t = double{place} - static_cast<double>(low);
    if (method == Method::kNearest) {
      result.push_back({{inside(low), 1}});
    } else if (method == Method::kLinear) {
      const double weight = double{place} - static_cast<double>(inside(low));
      result.push_back({{inside(low), 1 - weight}, {inside(inside(low) + 1), weight}});
    } else {
      const std::array<double, 4> weights = CubicWeights(t);
      Taps taps;
      for (int64_t i = 0; i < 4; ++i) taps.push_back({inside(low - 1 + i), weights[i]});
      result.push_back(taps);
    }
  }
  return result;
}

// Calls visit(place in the result, place in the image, weight) for what each element is a sum of.
template <typename Visit>
void ForEachInterpolated(const OpAttrs& attrs, Method method, const Dims& image_dims,
                         const Dims& out_dims, Visit visit) {
  const bool channels_last = attrs.String("data_layout").back() == 'C';
  const Dims image = ChannelsFirst(image_dims, channels_last);
  const Dims out = ChannelsFirst(out_dims, channels_last);
  const auto from = ImageSteps(image, channels_last), to = ImageSteps(out, channels_last);
  std::array<std::vector<Taps>, 3> taps;
  const size_t missing = 5 - image.size();
  for (size_t s = 0; s < 3; ++s) {
    const size_t d = 2 + s - missing;
    taps[s] = s < missing ? std::vector<Taps>{{{0, 1}}}
                          : Interpolated(attrs, method, s - missing, image[d], out[d]);
  }
  const auto size = [&](size_t s) { return static_cast<int64_t>(taps[s].size()); };
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t c = 0; c < out[1]; ++c) {
      const int64_t start = n * from[0] + c * from[1], out_start = n * to[0] + c * to[1];
      for (int64_t i = 0; i < size(0); ++i) {
        for (int64_t j = 0; j < size(1); ++j) {
          for (int64_t k = 0; k < size(2); ++k) {
            const int64_t place = out_start + i * to[2] + j * to[3] + k * to[4];
            for (const Tap& z : taps[0][i]) {
              for (const Tap& y : taps[1][j]) {
                for (const Tap& x : taps[2][k]) {
                  visit(place,
                        start + z.element * from[2] + y.element * from[3] + x.element * from[4],
                        z.weight * y.weight * x.weight);
                }
              }
            }
          }
        }
      }
    }
  }
}

absl::StatusOr<Kernel> Interpolate(const KernelSpec& spec, Method method) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    ForEachInterpolated(attrs, method, x(ctx).dims(), out(ctx).dims(),
                        [&](int64_t place, int64_t element, double weight) {
                          to[place] += static_cast<T>(weight) * from[element];
                        });
  });
}

absl::StatusOr<Kernel> InterpolateGrad(const KernelSpec& spec, Method method) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachInterpolated(attrs, method, dx(ctx).dims(), dout(ctx).dims(),
                        [&](int64_t place, int64_t element, double weight) {
                          to[element] += static_cast<T>(weight) * from[place];
                        });
  });
}

void AddInterpolation(const std::string& type, Method method, KernelTable* table) {
  table->Add(type, [=](const KernelSpec& spec) { return Interpolate(spec, method); });
  table->Add(type + "_grad", [=](const KernelSpec& spec) { return InterpolateGrad(spec, method); });
}

}  // namespace

void AddInterpolateKernels(KernelTable* table) {
  AddInterpolation("bicubic_interp_v2", Method::kCubic, table);
  AddInterpolation("bilinear_interp_v2", Method::kLinear, table);
  AddInterpolation("linear_interp_v2", Method::kLinear, table);
  AddInterpolation("nearest_interp_v2", Method::kNearest, table);
  AddInterpolation("trilinear_interp_v2", Method::kLinear, table);
}

}  // namespace weft
