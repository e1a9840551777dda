// Max pooling by windows of about equal size whose places are drawn: Graham, "Fractional
// Max-Pooling" (2014). As Paddle, it computes the places in single precision.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

struct Range {
  int64_t begin = 0, end = 1;
};

// The windows along a dimension: `count` of them, each `window` elements, or, if that is 0, up to
// where the next one begins. `u`, in [0, 1), shifts all.
std::vector<Range> WindowsAlong(int64_t size, int64_t count, int64_t window, float u) {
  const int64_t steps = count - (window > 0 ? 1 : 0);
  const float step = steps == 0 ? 0 : static_cast<float>(size - window) / steps;
  if (window == 0) {
    const int64_t base = size / count;
    const float first = (base + 2) / step - 1;
    const float last = (size + 1 - base) / step - static_cast<float>(count - 1);
    u *= std::min(first, last);
  }
  const auto begin_of = [=](int64_t i) {
    return static_cast<int64_t>((i + u) * step) - static_cast<int64_t>(u * step);
  };
  std::vector<Range> windows(count);
  for (int64_t i = 0; i < count; ++i) {
    windows[i].begin = begin_of(i);
    windows[i].end = std::min(window > 0 ? windows[i].begin + window : begin_of(i + 1), size);
  }
  return windows;
}

// out = the maximum of each window, mask = its index in the image and channel. Attribute random_u
// shifts the windows; if it is 0, the shift is drawn.
absl::StatusOr<Kernel> FractionalPool(OpKernel op) {
  const In x = op.in("x");
  const Out out = op.out("out"), mask = op.out("mask");
  const double shift = op.attrs().Float("random_u");
  const std::vector<int64_t> sizes = op.attrs().Ints("kernel_size");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    auto u = static_cast<float>(shift);
    if (u == 0) {
      std::mt19937_64 unused;
      WEFT_ASSIGN_OR_RETURN(std::mt19937_64* const engine,
                            EngineOf(/*seed=*/0, &RandomState::noise, ctx.random, &unused));
      u = std::uniform_real_distribution<float>(0, 1)(*engine);
    }
    // An image without depth has a depth of 1.
    const Dims &in = x(ctx).dims(), &pooled = out(ctx).dims();
    std::array<std::vector<Range>, 3> windows = {{{Range()}, {Range()}, {Range()}}};
    std::array<int64_t, 3> extents = {1, 1, 1};
    const size_t first = 5 - in.size();
    for (size_t i = first; i < 3; ++i) {
      extents[i] = in[2 + i - first];
      windows[i] = WindowsAlong(extents[i], pooled[2 + i - first], sizes[i - first], u);
    }
    const int64_t image = extents[0] * extents[1] * extents[2];
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    int32_t* places = mask.data_or_null<int32_t>(ctx);
    int64_t k = 0;
    for (int64_t plane = 0; plane < in[0] * in[1]; ++plane, from += image) {
      for (const Range& z : windows[0]) {
        for (const Range& y : windows[1]) {
          for (const Range& x_range : windows[2]) {
            T largest = std::numeric_limits<T>::lowest();
            int64_t place = -1;
            for (int64_t at_z = z.begin; at_z < z.end; ++at_z) {
              for (int64_t at_y = y.begin; at_y < y.end; ++at_y) {
                const int64_t row = (at_z * extents[1] + at_y) * extents[2];
                for (int64_t i = row + x_range.begin; i < row + x_range.end; ++i) {
                  if (!(from[i] > largest)) continue;
                  largest = from[i];
                  place = i;
                }
              }
            }
            to[k] = largest;
            if (places != nullptr) places[k] = static_cast<int32_t>(place);
            ++k;
          }
        }
      }
    }
    return absl::OkStatus();
  });
}

// x@GRAD = out@GRAD at the maxima, added up where windows share one. -1: a window had none.
absl::StatusOr<Kernel> FractionalPoolGrad(OpKernel op) {
  op.Ignore({"x"});
  const In mask = op.in("mask"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims& dims = dx(ctx).dims();
    const int64_t planes = dims[0] * dims[1];
    const int64_t image = planes == 0 ? 0 : dx(ctx).size() / planes;
    const int64_t pooled = planes == 0 ? 0 : dout(ctx).size() / planes;
    const int32_t* places = mask.data<int32_t>(ctx);
    const T* from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    for (int64_t k = 0; k < dout(ctx).size(); ++k) {
      if (places[k] < -1 || places[k] >= image) {
        return absl::InvalidArgumentError(absl::StrCat("input mask: ", places[k], " at position ",
                                                       k, " is not in [-1, ", image, ")"));
      }
      if (places[k] >= 0) to[k / pooled * image + places[k]] += from[k];
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddFractionalPoolKernels(KernelTable* table) {
  table->Add("fractional_max_pool2d", FractionalPool, FractionalPoolGrad);
  table->Add("fractional_max_pool3d", FractionalPool, FractionalPoolGrad);
}

}  // namespace weft
