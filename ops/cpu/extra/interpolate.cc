// Images padded, cut into windows, and looked up between their elements.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/image.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// --- pad3d ---------------------------------------------------------------------------------------

constexpr int64_t kOutside = -1;

// The element of a dimension of `size` that position `i`, 0 being the first element, shows.
int64_t ShownBy(const std::string& mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  if (mode == "replicate") return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "reflect") return i < 0 ? -i : 2 * (size - 1) - i;
  if (mode == "circular") return (i % size + size) % size;
  return kOutside;
}

// Calls visit(place in the padded image, place in the image, or kOutside) for the padded image.
template <typename Visit>
void ForEachPadded(const OpAttrs& attrs, const Dims& image, const Dims& padded, Visit visit) {
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  const std::string& mode = attrs.String("mode");
  const size_t first = attrs.String("data_format") == "NDHWC" ? 1 : 2;
  // Per dimension, the distance in the image of what each position shows.
  std::array<std::vector<int64_t>, 5> shown;
  int64_t stride = 1;
  for (size_t d = 5; d-- > 0;) {
    const bool is_space = d >= first && d < first + 3;
    const int64_t before = is_space ? paddings[4 - 2 * (d - first)] : 0;
    for (int64_t i = 0; i < padded[d]; ++i) {
      const int64_t element = ShownBy(mode, i - before, image[d]);
      shown[d].push_back(element == kOutside ? kOutside : element * stride);
    }
    stride *= image[d];
  }
  int64_t place = 0;
  for (int64_t n : shown[0]) {
    for (int64_t a : shown[1]) {
      for (int64_t b : shown[2]) {
        for (int64_t c : shown[3]) {
          const bool is_outside = a == kOutside || b == kOutside || c == kOutside;
          for (int64_t d : shown[4]) {
            visit(place++, is_outside || d == kOutside ? kOutside : n + a + b + c + d);
          }
        }
      }
    }
  }
}

// X@GRAD = Σ Out@GRAD over the positions that show the element; for_each(visit) calls
// visit(position, element or kOutside).
template <typename T, typename ForEach>
void AddShown(const Tensor& dout, Tensor* dx, ForEach for_each) {
  const T* from = dout.data<T>();
  T* to = dx->data<T>();
  std::fill_n(to, dx->size(), T(0));
  for_each([&](int64_t place, int64_t shown) {
    if (shown != kOutside) to[shown] += from[place];
  });
}

absl::StatusOr<Kernel> Pad3d(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = spec.attrs.Float("value");
  return op.Make(Numbers(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    const T outside = Saturated<T>(value);
    ForEachPadded(attrs, x(ctx).dims(), out(ctx).dims(), [&](int64_t place, int64_t shown) {
      to[place] = shown == kOutside ? outside : from[shown];
    });
  });
}

absl::StatusOr<Kernel> Pad3dGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    AddShown<T>(dout(ctx), &dx(ctx),
                [&](auto visit) { ForEachPadded(attrs, dx(ctx).dims(), dout(ctx).dims(), visit); });
  });
}

// --- unfold --------------------------------------------------------------------------------------

// Calls visit(place in Y, place in X, or kOutside) for all of Y = [batch, channels, rows and
// columns of the window; positions].
template <typename Visit>
void ForEachUnfolded(const OpAttrs& attrs, const Dims& image, Visit visit) {
  const std::vector<int64_t> sizes = attrs.Ints("kernel_sizes"), strides = attrs.Ints("strides"),
                             dilations = attrs.Ints("dilations"), paddings = attrs.Ints("paddings");
  const int64_t height = image[2], width = image[3];
  const auto positions = [&](size_t s) {
    const Window window = {sizes[s], strides[s], dilations[s], paddings[s], paddings[2 + s]};
    return *NumPositions(image[2 + s], window, Rounding::kDown);
  };
  const int64_t out_height = positions(0), out_width = positions(1);
  int64_t place = 0;
  for (int64_t channel = 0; channel < image[0] * image[1]; ++channel) {
    for (int64_t i = 0; i < sizes[0]; ++i) {
      for (int64_t j = 0; j < sizes[1]; ++j) {
        for (int64_t y = 0; y < out_height; ++y) {
          const int64_t row = y * strides[0] - paddings[0] + i * dilations[0];
          for (int64_t x = 0; x < out_width; ++x) {
            const int64_t column = x * strides[1] - paddings[1] + j * dilations[1];
            const bool is_inside = row >= 0 && row < height && column >= 0 && column < width;
            visit(place++, is_inside ? (channel * height + row) * width + column : kOutside);
          }
        }
      }
    }
  }
}

absl::StatusOr<Kernel> Unfold(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out y = op.out("Y");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = y.data<T>(ctx);
    ForEachUnfolded(attrs, x(ctx).dims(), [&](int64_t place, int64_t element) {
      to[place] = element == kOutside ? T(0) : from[element];
    });
  });
}

absl::StatusOr<Kernel> UnfoldGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dy = op.in("Y@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dy), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    AddShown<T>(dy(ctx), &dx(ctx),
                [&](auto visit) { ForEachUnfolded(attrs, dx(ctx).dims(), visit); });
  });
}

// The reverse: elements at the same place are added up.
absl::StatusOr<Kernel> Fold(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out y = op.out("Y");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    AddShown<T>(x(ctx), &y(ctx), [&](auto visit) { ForEachUnfolded(attrs, y(ctx).dims(), visit); });
  });
}

absl::StatusOr<Kernel> FoldGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dy = op.in("Y@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dy), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = dy.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    ForEachUnfolded(attrs, dy(ctx).dims(), [&](int64_t place, int64_t element) {
      to[place] = element == kOutside ? T(0) : from[element];
    });
  });
}

// --- unpool --------------------------------------------------------------------------------------

// Calls visit(element, place in Out) for all of Indices.
template <typename Visit>
absl::Status ForEachIndex(const Tensor& indices, const Dims& out, Visit visit) {
  return ForElementType<int32_t, int64_t>("input Indices", indices, [&](auto tag) -> absl::Status {
    const auto* from = indices.data<typename decltype(tag)::type>();
    const int64_t channel = indices.dim(2) * indices.dim(3), size = out[2] * out[3];
    for (int64_t i = 0; i < indices.size(); ++i) {
      if (from[i] < 0 || from[i] >= size) {
        return absl::InvalidArgumentError(absl::StrCat("input Indices: ", from[i], " at position ",
                                                       i, " is not in [0, ", size, ")"));
      }
      visit(i, i / channel * size + from[i]);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> Unpool(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), indices = op.in("Indices");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    return ForEachIndex(indices(ctx), out(ctx).dims(),
                        [&](int64_t element, int64_t place) { to[place] = from[element]; });
  });
}

absl::StatusOr<Kernel> UnpoolGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X", "Out"});
  const In indices = op.in("Indices"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    return ForEachIndex(indices(ctx), dout(ctx).dims(),
                        [&](int64_t element, int64_t place) { to[element] = from[place]; });
  });
}

// --- affine_grid ---------------------------------------------------------------------------------

// The middles of `size` elements from -1 to 1; with align_corners those of the first and the last
// one are -1 and 1.
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

// Calls visit(place in the grid, {column, row, 1}).
template <typename Visit>
void ForEachMiddle(const Dims& grid, bool align_corners, Visit visit) {
  const auto rows = Middles(grid[1], align_corners), columns = Middles(grid[2], align_corners);
  int64_t place = 0;
  for (double row : rows) {
    for (double column : columns) visit(place++, std::array<double, 3>{column, row, 1});
  }
}

// Output[n, row, column] = Theta[n] {column, row, 1}.
absl::StatusOr<Kernel> AffineGrid(const KernelSpec& spec) {
  OpKernel op(spec);
  const In theta = op.in("Theta");
  const Out out = op.out("Output");
  const bool align = spec.attrs.Bool("align_corners");
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

absl::StatusOr<Kernel> AffineGridGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Theta"});
  const In dout = op.in("Output@GRAD");
  const Out dtheta = op.out("Theta@GRAD");
  const bool align = spec.attrs.Bool("align_corners");
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

// --- Interpolation -------------------------------------------------------------------------------

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

// --- grid_sampler --------------------------------------------------------------------------------

// A coordinate of the image, and its derivative by that of the grid.
struct Coordinate {
  double at, slope;
};

// `g` in the grid goes from -1 to 1 over `size` elements: between the middles of the first and the
// last one (align_corners), or their outer borders.
Coordinate ToImage(double g, int64_t size, bool align_corners, const std::string& padding) {
  const double last = static_cast<double>(size - 1);
  Coordinate x;
  x.slope = (align_corners ? last : last + 1) / 2;
  x.at = align_corners ? (g + 1) / 2 * last : ((g + 1) * (last + 1) - 1) / 2;
  if (padding == "reflection") {
    // Reflected at the borders, or middles, as often as it takes.
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

// An element of the image: its weight in the result, and the derivatives of that by the place.
struct Corner {
  int64_t row, column;
  double weight, by_row, by_column;
};

// Those around a place; ones outside of the image have weight 0 and are left out.
struct Corners {
  std::array<Corner, 4> corners;
  int count = 0;

  Corners(const Coordinate& y, const Coordinate& x, const Dims& image, bool is_nearest) {
    // Nowhere near the image, or no number.
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

// Calls visit(n, place in the grid of a sample, corners) for all of Grid.
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

absl::StatusOr<Kernel> GridSampler(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), grid = op.in("Grid");
  const Out out = op.out("Output");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
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

absl::StatusOr<Kernel> GridSamplerGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), grid = op.in("Grid"), dout = op.in("Output@GRAD");
  const Out dx = op.out("X@GRAD"), dgrid = op.out("Grid@GRAD");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
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

void AddResampleKernels(KernelTable* table) {
  table->Add("pad3d", Pad3d);
  table->Add("pad3d_grad", Pad3dGrad);
  table->Add("unfold", Unfold);
  table->Add("unfold_grad", UnfoldGrad);
  AddInterpolation("bicubic_interp_v2", Method::kCubic, table);
  AddInterpolation("bilinear_interp_v2", Method::kLinear, table);
  AddInterpolation("linear_interp_v2", Method::kLinear, table);
  AddInterpolation("nearest_interp_v2", Method::kNearest, table);
  AddInterpolation("trilinear_interp_v2", Method::kLinear, table);
  table->Add("fold", Fold);
  table->Add("fold_grad", FoldGrad);
  table->Add("unpool", Unpool);
  table->Add("unpool_grad", UnpoolGrad);
  table->Add("affine_grid", AffineGrid);
  table->Add("affine_grid_grad", AffineGridGrad);
  table->Add("grid_sampler", GridSampler);
  table->Add("grid_sampler_grad", GridSamplerGrad);
}

}  // namespace weft
