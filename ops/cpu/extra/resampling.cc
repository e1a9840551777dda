// Images read between their elements: resized, and at the points of a grid.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

enum class Method { kNearest, kLinear, kCubic };
// The first one steps by the ratio of the sizes, even where a scale says what they are.
enum class Version { kFirst, kSecond };

// The terms of an element of the result, along a dimension.
struct Tap {
  int64_t element;
  double weight;
};
using Taps = std::vector<Tap>;

// The weights of the cubic convolution with a = -0.75, for the elements around a point at distance
// t after the second of four.
std::array<double, 4> CubicWeights(double t) {
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// For each of `out_size` elements along a dimension. As in Paddle: the corners of both images
// coincide (align_corners), or, for cubic interpolation, and linear with align_mode 0, the corners
// of their elements.
std::vector<Taps> Interpolated(const OpAttrs& attrs, Method method, size_t dimension,
                               int64_t in_size, int64_t out_size) {
  const bool aligned = attrs.Bool("align_corners");
  const bool by_halves = !aligned && (method == Method::kCubic ||
                                      (method == Method::kLinear && attrs.Int("align_mode") == 0));
  const std::vector<double> scales = attrs.Floats("scale");
  const double scale = scales.empty() ? 0 : scales[scales.size() == 1 ? 0 : dimension];
  float ratio = 0;  // in single precision, like the coordinates that depend on it
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

// Calls visit(index in the result, index in the image, weight) for all terms of each element.
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

// Out = X interpolated; X@GRAD = the transpose of that map of Out@GRAD.
template <bool is_grad>
absl::StatusOr<Kernel> Interpolate(const KernelSpec& spec, Method method, Version version) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In x = op.in(is_grad ? "Out@GRAD" : "X");
  const Out out = op.out(is_grad ? "X@GRAD" : "Out");
  OpAttrs attrs = spec.attrs;
  if (version == Version::kFirst) attrs.Set("scale", std::vector<double>());
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    const Dims &image = is_grad ? out(ctx).dims() : x(ctx).dims(),
               &result = is_grad ? x(ctx).dims() : out(ctx).dims();
    ForEachInterpolated(
        attrs, method, image, result, [&](int64_t place, int64_t element, double weight) {
          to[is_grad ? element : place] += static_cast<T>(weight) * from[is_grad ? place : element];
        });
  });
}

// The centers of `size` elements from -1 to 1; with align_corners, the first and the last center
// are -1 and 1.
std::vector<double> Middles(int64_t size, bool align_corners) {
  std::vector<double> middles(size);
  for (int64_t i = 0; i < size; ++i) {
    const double last = static_cast<double>(std::max<int64_t>(size - 1, 1));
    const double aligned = 2 * static_cast<double>(i) / last - 1;
    middles[i] =
        align_corners ? aligned : (2 * static_cast<double>(i) + 1) / static_cast<double>(size) - 1;
  }
  return middles;
}

// Calls visit(index in the grid, {column, row, 1}).
template <typename Visit>
void ForEachMiddle(const Dims& grid, bool align_corners, Visit visit) {
  const auto rows = Middles(grid[1], align_corners), columns = Middles(grid[2], align_corners);
  int64_t place = 0;
  for (double row : rows) {
    for (double column : columns) visit(place++, std::array<double, 3>{column, row, 1});
  }
}

// Output[n, row, column] = Theta[n] {column, row, 1}.
absl::StatusOr<Kernel> AffineGrid(OpKernel op) {
  const In theta = op.in("Theta");
  const Out out = op.out("Output");
  const bool align = op.attrs().Bool("align_corners");
  return op.Make(Floats(theta), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& grid = out(ctx).dims();
    for (int64_t n = 0; n < grid[0]; ++n) {
      const T* matrix = theta.data<T>(ctx) + 6 * n;
      T* to = out.data<T>(ctx) + n * grid[1] * grid[2] * 2;
      ForEachMiddle(grid, align, [&](int64_t place, const std::array<double, 3>& at) {
        for (int64_t i = 0; i < 2; ++i) {
          double sum = 0;
          for (int64_t k = 0; k < 3; ++k) sum += matrix[3 * i + k] * at[k];
          to[2 * place + i] = static_cast<T>(sum);
        }
      });
    }
  });
}

absl::StatusOr<Kernel> AffineGridGrad(OpKernel op) {
  op.Ignore({"Theta"});
  const In dout = op.in("Output@GRAD");
  const Out dtheta = op.out("Theta@GRAD");
  const bool align = op.attrs().Bool("align_corners");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& grid = dout(ctx).dims();
    for (int64_t n = 0; n < grid[0]; ++n) {
      const T* from = dout.data<T>(ctx) + n * grid[1] * grid[2] * 2;
      std::array<double, 6> sums{};
      ForEachMiddle(grid, align, [&](int64_t place, const std::array<double, 3>& at) {
        for (int64_t i = 0; i < 6; ++i) sums[i] += from[2 * place + i / 3] * at[i % 3];
      });
      std::copy(sums.begin(), sums.end(), dtheta.data<T>(ctx) + 6 * n);
    }
  });
}

// A coordinate of the image, and its derivative by that of the grid.
struct Coordinate {
  double at, slope;
};

// `g` in the grid goes from -1 to 1 over `size` elements: between the centers of the first and the
// last one (align_corners), or their outer borders.
Coordinate ToImage(double g, int64_t size, bool align_corners, const std::string& padding) {
  const double last = static_cast<double>(size - 1);
  Coordinate x;
  x.slope = (align_corners ? last : last + 1) / 2;
  x.at = align_corners ? (g + 1) / 2 * last : ((g + 1) * (last + 1) - 1) / 2;
  if (padding == "reflection") {
    // Reflected at the borders, or centers, as often as necessary.
    const double shift = align_corners ? 0 : 0.5;
    const double range = align_corners ? last : last + 1;
    if (range == 0) return {0, 0};
    double distance = x.at + shift;
    if (distance < 0) x.slope = -x.slope;
    distance = std::fmod(std::fabs(distance), 2 * range);
    if (distance > range) {
      distance = 2 * range - distance;
      x.slope = -x.slope;
    }
    x.at = distance - shift;
  }
  if (padding != "zeros") {
    if (!(x.at > 0 && x.at < last)) x.slope = 0;
    x.at = x.at > 0 ? std::min(x.at, last) : 0;
  }
  return x;
}

// An element of the image: its weight in the result, and the derivatives of the weight by the
// point.
struct Corner {
  int64_t row, column;
  double weight, by_row, by_column;
};

// The corners around a point that are inside the image; others have weight 0.
struct Corners {
  std::array<Corner, 4> corners;
  int count = 0;

  Corners(const Coordinate& y, const Coordinate& x, const Dims& image, bool is_nearest) {
    // Far outside of the image, or NaN.
    if (!(y.at > -2 && y.at < static_cast<double>(image[2] + 1))) return;
    if (!(x.at > -2 && x.at < static_cast<double>(image[3] + 1))) return;
    const auto add = [&](double row, double column, double weight, double by_row,
                         double by_column) {
      const int64_t r = static_cast<int64_t>(row), c = static_cast<int64_t>(column);
      if (r < 0 || r >= image[2] || c < 0 || c >= image[3]) return;
      corners[count++] = {r, c, weight, by_row * y.slope, by_column * x.slope};
    };
    if (is_nearest) {
      add(std::nearbyint(y.at), std::nearbyint(x.at), 1, 0, 0);
      return;
    }
    const double top = std::floor(y.at), left = std::floor(x.at);
    const double v = y.at - top, u = x.at - left;
    add(top, left, (1 - v) * (1 - u), u - 1, v - 1);
    add(top, left + 1, (1 - v) * u, -u, 1 - v);
    add(top + 1, left, v * (1 - u), 1 - u, -v);
    add(top + 1, left + 1, v * u, u, v);
  }
  const Corner* begin() const { return corners.data(); }
  const Corner* end() const { return corners.data() + count; }
};

// Calls visit(n, index in the grid of a sample, corners) for all of Grid.
template <typename T, typename Visit>
void ForEachGridPoint(const OpAttrs& attrs, const Dims& image, const Dims& grid_dims, const T* grid,
                      Visit visit) {
  const bool align_corners = attrs.Bool("align_corners");
  const bool is_nearest = attrs.String("mode") == "nearest";
  const std::string& padding = attrs.String("padding_mode");
  const int64_t points = grid_dims[1] * grid_dims[2];
  for (int64_t n = 0; n < grid_dims[0]; ++n) {
    for (int64_t p = 0; p < points; ++p, grid += 2) {
      const Coordinate x = ToImage(grid[0], image[3], align_corners, padding);
      const Coordinate y = ToImage(grid[1], image[2], align_corners, padding);
      visit(n, p, Corners(y, x, image, is_nearest));
    }
  }
}

absl::StatusOr<Kernel> GridSampler(OpKernel op) {
  const In x = op.in("X"), grid = op.in("Grid");
  const Out out = op.out("Output");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims image = x(ctx).dims();
    const int64_t size = image[2] * image[3];
    const int64_t points = grid(ctx).dim(1) * grid(ctx).dim(2);
    ForEachGridPoint(attrs, image, grid(ctx).dims(), grid.data<T>(ctx),
                     [&](int64_t n, int64_t p, const Corners& corners) {
                       for (int64_t c = n * image[1]; c < (n + 1) * image[1]; ++c) {
                         const T* from = x.data<T>(ctx) + c * size;
                         double sum = 0;
                         for (const Corner& k : corners) {
                           sum += k.weight * from[k.row * image[3] + k.column];
                         }
                         out.data<T>(ctx)[c * points + p] = static_cast<T>(sum);
                       }
                     });
  });
}

absl::StatusOr<Kernel> GridSamplerGrad(OpKernel op) {
  const In x = op.in("X"), grid = op.in("Grid"), dout = op.in("Output@GRAD");
  const Out dx = op.out("X@GRAD"), dgrid = op.out("Grid@GRAD");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims image = x(ctx).dims();
    const int64_t size = image[2] * image[3];
    const int64_t points = grid(ctx).dim(1) * grid(ctx).dim(2);
    T *to = dx.data_or_null<T>(ctx), *to_grid = dgrid.data_or_null<T>(ctx);
    if (to != nullptr) std::fill_n(to, dx(ctx).size(), T(0));
    ForEachGridPoint(attrs, image, grid(ctx).dims(), grid.data<T>(ctx),
                     [&](int64_t n, int64_t p, const Corners& corners) {
                       double by_row = 0, by_column = 0;
                       for (int64_t c = n * image[1]; c < (n + 1) * image[1]; ++c) {
                         const double dy = dout.data<T>(ctx)[c * points + p];
                         for (const Corner& k : corners) {
                           const int64_t place = c * size + k.row * image[3] + k.column;
                           if (to != nullptr) to[place] += static_cast<T>(k.weight * dy);
                           by_row += k.by_row * dy * x.data<T>(ctx)[place];
                           by_column += k.by_column * dy * x.data<T>(ctx)[place];
                         }
                       }
                       if (to_grid == nullptr) return;
                       to_grid[2 * (n * points + p)] = static_cast<T>(by_column);
                       to_grid[2 * (n * points + p) + 1] = static_cast<T>(by_row);
                     });
  });
}

}  // namespace

void AddResamplingKernels(KernelTable* table) {
  const std::pair<std::string, Method> methods[] = {
      {"bicubic_interp", Method::kCubic},    {"bilinear_interp", Method::kLinear},
      {"linear_interp", Method::kLinear},    {"nearest_interp", Method::kNearest},
      {"trilinear_interp", Method::kLinear},
  };
  for (const auto& [type, method] : methods) {
    for (Version version : {Version::kFirst, Version::kSecond}) {
      table->Add(
          type + (version == Version::kFirst ? "" : "_v2"),
          [=, m = method](const KernelSpec& spec) { return Interpolate<false>(spec, m, version); },
          [=, m = method](const KernelSpec& spec) { return Interpolate<true>(spec, m, version); });
    }
  }
  table->Add("affine_grid", AffineGrid);
  table->Add("affine_grid_grad", AffineGridGrad);
  table->Add("grid_sampler", GridSampler);
  table->Add("grid_sampler_grad", GridSamplerGrad);
}

}  // namespace weft
