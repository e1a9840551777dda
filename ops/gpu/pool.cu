// Pooling of images: the maximum, or the mean, of the elements under a window. Gradients are
// gathered: a thread adds what the windows with its element give to it, in their order.
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/cpu/image.h"
#include "ops/cpu/pool_attrs.h"
#include "ops/formulas/window.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr int kSpace = 3;  // a missing spatial dimension is the first of these, with one element

// The windows of one op.
struct Windows {
  int64_t channels;
  formulas::PoolWindows along[kSpace];
  int64_t x_steps[2 + kSpace], out_steps[2 + kSpace];
  bool channels_last;

  Windows(const PoolAttrs& attrs, const Dims& x, const Dims& out)
      : channels_last(attrs.channels_last) {
    const Dims of_x = ChannelsFirst(x, channels_last), of_out = ChannelsFirst(out, channels_last);
    channels = of_x[1];
    const auto steps = ImageSteps(of_x, channels_last), to = ImageSteps(of_out, channels_last);
    std::copy(steps.begin(), steps.end(), x_steps);
    std::copy(to.begin(), to.end(), out_steps);
    const size_t first = kSpace - attrs.space;
    for (size_t i = 0; i < attrs.space; ++i) {
      along[first + i] = attrs.WindowsAlong(i, of_x[2 + i], of_out[2 + i]);
    }
  }

  struct Place {
    int64_t n, c, at[kSpace];
  };
  // Of element i of X, or of Out.
  WEFT_DEVICE Place PlaceIn(bool is_x, int64_t i) const {
    Place place;
    if (channels_last) {
      place.c = i % channels;
      i /= channels;
    }
    for (int d = kSpace - 1; d >= 0; --d) {
      const int64_t size = is_x ? along[d].image : along[d].positions;
      place.at[d] = i % size;
      i /= size;
    }
    if (!channels_last) {
      place.c = i % channels;
      i /= channels;
    }
    place.n = i;
    return place;
  }
  // The index of an element of X in its image and channel.
  WEFT_DEVICE int64_t IndexOf(int64_t z, int64_t y, int64_t x) const {
    return (z * along[1].image + y) * along[2].image + x;
  }
  // f(i, index) for the elements of X under window `out`, in order; returns the divisor of their
  // mean.
  template <typename F>
  WEFT_DEVICE int64_t ForEachElement(int64_t out, F f) const {
    const Place p = PlaceIn(/*is_x=*/false, out);
    const formulas::PoolRange zs = along[0].At(p.at[0]), ys = along[1].At(p.at[1]),
                              xs = along[2].At(p.at[2]);
    const int64_t plane = p.n * x_steps[0] + p.c * x_steps[1];
    for (int64_t z = zs.begin; z < zs.end; ++z) {
      for (int64_t y = ys.begin; y < ys.end; ++y) {
        for (int64_t x = xs.begin; x < xs.end; ++x) {
          f(plane + z * x_steps[2] + y * x_steps[3] + x * x_steps[4], IndexOf(z, y, x));
        }
      }
    }
    return zs.divisor * ys.divisor * xs.divisor;
  }
  // f(k, divisor) for the windows k that have the element of X at p, in order.
  template <typename F>
  WEFT_DEVICE void ForEachWindowOf(const Place& p, F f) const {
    const int64_t plane = p.n * out_steps[0] + p.c * out_steps[1];
    for (int64_t z = along[0].First(p.at[0]); z < along[0].End(p.at[0]); ++z) {
      for (int64_t y = along[1].First(p.at[1]); y < along[1].End(p.at[1]); ++y) {
        for (int64_t x = along[2].First(p.at[2]); x < along[2].End(p.at[2]); ++x) {
          f(plane + z * out_steps[2] + y * out_steps[3] + x * out_steps[4],
            along[0].At(z).divisor * along[1].At(y).divisor * along[2].At(x).divisor);
        }
      }
    }
  }
};

template <typename T>
struct MaxOf {
  Windows windows;
  T lowest;
  const T* x;
  T* out;
  int32_t* indices;  // may be null
  WEFT_DEVICE void operator()(int64_t k) const {
    T largest = lowest;
    int64_t index_of_largest = -1;
    windows.ForEachElement(k, [&](int64_t i, int64_t index) {
      if (x[i] <= largest) return;
      largest = x[i];
      index_of_largest = index;
    });
    out[k] = largest;
    if (indices != nullptr) indices[k] = static_cast<int32_t>(index_of_largest);
  }
};

template <typename T>
struct MeanOf {
  Windows windows;
  const T* x;
  T* out;
  WEFT_DEVICE void operator()(int64_t k) const {
    T sum = 0;
    const int64_t divisor = windows.ForEachElement(k, [&](int64_t i, int64_t) { sum += x[i]; });
    out[k] = sum / static_cast<T>(divisor);
  }
};

// The index of the first element that is equal to the maximum; -1 if none is.
template <typename T>
struct FindMaximum {
  Windows windows;
  const T *x, *out;
  int32_t* indices;
  WEFT_DEVICE void operator()(int64_t k) const {
    int64_t first = -1;
    windows.ForEachElement(k, [&](int64_t i, int64_t index) {
      if (first < 0 && x[i] == out[k]) first = index;
    });
    indices[k] = static_cast<int32_t>(first);
  }
};

template <typename T>
struct MaxGradient {
  Windows windows;
  const T* dout;
  const int32_t* indices;
  T* dx;
  WEFT_DEVICE void operator()(int64_t i) const {
    const Windows::Place p = windows.PlaceIn(/*is_x=*/true, i);
    const int64_t index = windows.IndexOf(p.at[0], p.at[1], p.at[2]);
    T sum = 0;
    windows.ForEachWindowOf(p, [&](int64_t k, int64_t) {
      if (indices[k] == index) sum += dout[k];
    });
    dx[i] = sum;
  }
};

template <typename T>
struct MeanGradient {
  Windows windows;
  const T* dout;
  T* dx;
  WEFT_DEVICE void operator()(int64_t i) const {
    T sum = 0;
    windows.ForEachWindowOf(windows.PlaceIn(/*is_x=*/true, i), [&](int64_t k, int64_t divisor) {
      sum += dout[k] / static_cast<T>(divisor);
    });
    dx[i] = sum;
  }
};

// Mask, if present: the index of each maximum, the first one of equal ones.
absl::StatusOr<Kernel> Pool(OpKernel op, size_t space) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const Out mask = op.spec().schema->FindOutput("Mask") != nullptr ? op.out("Mask") : Out();
  op.Supports(Floats(x));
  WEFT_ASSIGN_OR_RETURN(const PoolAttrs attrs, PoolAttrs::Read(op.spec(), space));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Windows windows(attrs, x(ctx).dims(), out(ctx).dims());
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    if (!attrs.is_max) return ForEach(ctx, out(ctx).size(), MeanOf<T>{windows, from, to});
    return ForEach(ctx, out(ctx).size(),
                   MaxOf<T>{windows, std::numeric_limits<T>::lowest(), from, to,
                            mask.data_or_null<int32_t>(ctx)});
  });
}

// The gradient of a maximum goes to the element at its index in Mask or, without Mask, to the first
// element that is equal to it.
absl::StatusOr<Kernel> PoolGrad(OpKernel op, size_t space) {
  const bool is_indexed = op.spec().schema->FindInput("Mask") != nullptr;
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const In out = is_indexed ? In() : op.in("Out"), mask = is_indexed ? op.in("Mask") : In();
  const Out dx = op.out("X@GRAD");
  op.Supports(Floats(x));
  WEFT_ASSIGN_OR_RETURN(const PoolAttrs attrs, PoolAttrs::Read(op.spec(), space));
  return op.Make(
      Floats(x),
      [=, found = Tensor()](const KernelContext& ctx, auto zero) mutable -> absl::Status {
        using T = decltype(zero);
        const Windows windows(attrs, x(ctx).dims(), dout(ctx).dims());
        const T* douts = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        if (!attrs.is_max) return ForEach(ctx, dx(ctx).size(), MeanGradient<T>{windows, douts, to});
        const int32_t* indices;
        if (is_indexed) {
          indices = mask.data<int32_t>(ctx);
        } else {
          ScratchLike(dx(ctx), &found)->Resize(DType::kInt32, dout(ctx).dims());
          WEFT_RETURN_IF_ERROR(ForEach(
              ctx, dout(ctx).size(),
              FindMaximum<T>{windows, x.data<T>(ctx), out.data<T>(ctx), found.data<int32_t>()}));
          indices = found.data<int32_t>();
        }
        return ForEach(ctx, dx(ctx).size(), MaxGradient<T>{windows, douts, indices, to});
      });
}

}  // namespace

void AddGpuPoolKernels(KernelTable* table) {
  for (const size_t space : {2, 3}) {
    const auto bind = [space](auto factory) {
      return [=](const KernelSpec& spec) { return factory(spec, space); };
    };
    for (const std::string& type :
         {absl::StrCat("pool", space, "d"), absl::StrCat("max_pool", space, "d_with_index")}) {
      table->Add(type, bind(Pool), bind(PoolGrad));
    }
  }
}

}  // namespace weft
