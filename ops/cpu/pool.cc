// Pooling: the maximum, the mean, or a norm, of the elements under a window. oneDNN computes it in
// single precision if its windows are those of the op. Plain loops compute the rest: adaptive
// sizes, and indices of maxima.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/cpu/image.h"
#include "ops/cpu/maxima_gradient.h"
#include "ops/cpu/pool_attrs.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

using formulas::PoolRange;

// The elements under the windows of one op.
class Pooling {
 public:
  Pooling(const PoolAttrs& attrs, const Dims& x, const Dims& out)
      : x_(ChannelsFirst(x, attrs.channels_last)),
        out_(ChannelsFirst(out, attrs.channels_last)),
        x_steps_(ImageSteps(x_, attrs.channels_last)),
        out_steps_(ImageSteps(out_, attrs.channels_last)) {
    const size_t first = 3 - attrs.space;
    for (size_t i = 0; i < first; ++i) ranges_[i] = {PoolRange()};
    for (size_t i = 0; i < attrs.space; ++i) {
      ranges_[first + i] = Ranges(attrs, i, x_[2 + i], out_[2 + i]);
      row_size_[first + i] = x_[2 + i];
    }
  }

  // Calls visit(k, window, divisor) for every element k of Out. window(f) calls f(i, index) for
  // every element i of X under the window; `index` counts the elements of that image and channel.
  // The mean is the sum of the elements divided by `divisor`.
  template <typename Visit>
  void ForEachWindow(Visit visit) const {
    for (int64_t n = 0; n < out_[0]; ++n) {
      for (int64_t c = 0; c < out_[1]; ++c) {
        for (size_t z = 0; z < ranges_[0].size(); ++z) {
          for (size_t y = 0; y < ranges_[1].size(); ++y) {
            for (size_t x = 0; x < ranges_[2].size(); ++x) {
              const int64_t k = n * out_steps_[0] + c * out_steps_[1] + z * out_steps_[2] +
                                y * out_steps_[3] + x * out_steps_[4];
              const int64_t plane = n * x_steps_[0] + c * x_steps_[1];
              const std::array<PoolRange, 3> window = {ranges_[0][z], ranges_[1][y], ranges_[2][x]};
              visit(
                  k, [this, plane, window](auto f) { ForEachElement(plane, window, f); },
                  window[0].divisor * window[1].divisor * window[2].divisor);
            }
          }
        }
      }
    }
  }

  // Calls visit(k, i) for every element k of Out, if channels come first: i is the first largest
  // element of X under its window, -1 if none is larger than the lowest number.
  template <typename T, typename Visit>
  void ForEachMaximum(const T* values, Visit visit) const {
    int64_t k = 0;
    for (int64_t plane = 0; plane < x_[0] * x_[1]; ++plane) {
      for (const PoolRange& z : ranges_[0]) {
        for (const PoolRange& y : ranges_[1]) {
          for (const PoolRange& x : ranges_[2]) {
            T largest = std::numeric_limits<T>::lowest();
            int64_t place = -1;
            for (int64_t at_z = z.begin; at_z < z.end; ++at_z) {
              for (int64_t at_y = y.begin; at_y < y.end; ++at_y) {
                const int64_t row = plane * x_steps_[1] + at_z * x_steps_[2] + at_y * x_steps_[3];
                for (int64_t i = row + x.begin; i < row + x.end; ++i) {
                  const bool is_larger = values[i] > largest;
                  largest = is_larger ? values[i] : largest;
                  place = is_larger ? i : place;
                }
              }
            }
            visit(k++, place);
          }
        }
      }
    }
  }

  // The windows of an image with channels last; nullopt if some share elements.
  absl::optional<DisjointWindows> Disjoint() const {
    const int64_t channels = x_[1];
    DisjointWindows windows(row_size_[0] * row_size_[1] * row_size_[2], channels);
    for (const PoolRange& z : ranges_[0]) {
      for (const PoolRange& y : ranges_[1]) {
        for (const PoolRange& x : ranges_[2]) {
          windows.AddWindow(z.is_cut || y.is_cut || x.is_cut);
          bool is_disjoint = true;
          ForEachElement(0, {z, y, x}, [&](int64_t, int64_t index) {
            is_disjoint = is_disjoint && windows.AddElement(index);
          });
          if (!is_disjoint) return absl::nullopt;
        }
      }
    }
    return windows;
  }

 private:
  // Along spatial dimension i.
  static std::vector<PoolRange> Ranges(const PoolAttrs& attrs, size_t i, int64_t size,
                                       int64_t positions) {
    const formulas::PoolWindows windows = attrs.WindowsAlong(i, size, positions);
    std::vector<PoolRange> ranges(positions);
    for (int64_t at = 0; at < positions; ++at) ranges[at] = windows.At(at);
    return ranges;
  }

  template <typename F>
  void ForEachElement(int64_t plane, const std::array<PoolRange, 3>& window, F f) const {
    for (int64_t z = window[0].begin; z < window[0].end; ++z) {
      for (int64_t y = window[1].begin; y < window[1].end; ++y) {
        const int64_t row = plane + z * x_steps_[2] + y * x_steps_[3];
        const int64_t row_place = (z * row_size_[1] + y) * row_size_[2];
        for (int64_t x = window[2].begin; x < window[2].end; ++x) {
          f(row + x * x_steps_[4], row_place + x);
        }
      }
    }
  }

  Dims x_, out_;
  std::array<int64_t, 5> x_steps_, out_steps_;
  std::array<std::vector<PoolRange>, 3> ranges_;
  std::array<int64_t, 3> row_size_ = {1, 1, 1};
};

// --- oneDNN --------------------------------------------------------------------------------------

// Pooling of images of these dims, channels first.
struct PoolShape {
  Dims x, out;
  const PoolAttrs* attrs;

  Window At(size_t i) const {
    if (!attrs->is_global) return WithExplicitPaddings(attrs->windows[i], x[2 + i]);
    Window window;
    window.size = x[2 + i];
    return window;
  }
  // How far the last position of window i extends beyond the image; negative if it ends before the
  // end.
  int64_t Overhang(size_t i) const {
    const Window w = At(i);
    return (out[2 + i] - 1) * w.stride + w.size - x[2 + i] - w.pad_begin;
  }

  // Whether oneDNN supports these windows: none lies in the padding alone, or skips more than a
  // stride at the end of the image; and if padding counts, none extends beyond it.
  bool IsForDnnl() const {
    if (attrs->adaptive || attrs->norm != 0 || NumElements(x) == 0 || NumElements(out) == 0)
      return false;
    for (size_t i = 0; i < attrs->space; ++i) {
      const Window w = At(i);
      const int64_t overhang = Overhang(i);
      if (w.pad_begin >= w.size || overhang >= w.size || overhang + w.stride <= 0) return false;
      const bool padding_counts = !attrs->is_max && !attrs->exclusive && !attrs->is_global;
      if (padding_counts && overhang > w.pad_end) return false;
    }
    return true;
  }
};

dnnl::algorithm AlgorithmOf(const PoolAttrs& attrs) {
  if (attrs.is_max) return dnnl::algorithm::pooling_max;
  return attrs.exclusive ? dnnl::algorithm::pooling_avg_exclude_padding
                         : dnnl::algorithm::pooling_avg_include_padding;
}

struct DnnlWindows {
  explicit DnnlWindows(const PoolShape& shape) {
    for (size_t i = 0; i < shape.attrs->space; ++i) {
      const Window w = shape.At(i);
      sizes.push_back(w.size);
      strides.push_back(w.stride);
      begin.push_back(w.pad_begin);
      end.push_back(std::max<int64_t>(shape.Overhang(i), 0));
    }
  }

  dnnl::memory::dims sizes, strides, begin, end;
};

using ForwardDesc = dnnl::pooling_forward::primitive_desc;

ForwardDesc DescribeForward(const PoolShape& shape, dnnl::prop_kind kind,
                            const dnnl::memory::desc& x, const dnnl::memory::desc& out) {
  const DnnlWindows w(shape);
  return {{kind, AlgorithmOf(*shape.attrs), x, out, w.strides, w.sizes, w.begin, w.end},
          DnnlAttributes(),
          DnnlCpuEngine()};
}

// With or without what a gradient needs. Without AVX-512, oneDNN has but a slow loop for images
// whose channels come first: faster are blocks, with the reordering that they need.
ForwardDesc DescribeForward(const PoolShape& shape, dnnl::prop_kind kind) {
  const bool last = shape.attrs->channels_last;
  const auto is_compiled = [](const ForwardDesc& forward) {
    return absl::StartsWith(forward.impl_info_str(), "jit");
  };
  const ForwardDesc plain =
      DescribeForward(shape, kind, DnnlImage(shape.x, last), DnnlImage(shape.out, last));
  if (last || is_compiled(plain)) return plain;
  const ForwardDesc blocks =
      DescribeForward(shape, kind, DnnlImageInBlocks(shape.x), DnnlImageInBlocks(shape.out));
  return is_compiled(blocks) ? blocks : plain;
}

DnnlPrimitive::Argument ArgumentOf(int name, const Dims& dims, const PoolShape& shape,
                                   const dnnl::memory::desc& own) {
  return {name, DnnlImage(dims, shape.attrs->channels_last), own};
}

DnnlPrimitive MakeForward(const PoolShape& shape) {
  const auto forward = DescribeForward(shape, dnnl::prop_kind::forward_inference);
  return DnnlPrimitive(dnnl::pooling_forward(forward), forward.scratchpad_desc(),
                       {ArgumentOf(DNNL_ARG_SRC, shape.x, shape, forward.src_desc())},
                       {ArgumentOf(DNNL_ARG_DST, shape.out, shape, forward.dst_desc())});
}

// Reads X, for a maximum, and the gradient of Out. It finds the maxima again, because the op does
// not keep their positions.
DnnlPrimitive MakeBackward(const PoolShape& shape) {
  const auto forward = DescribeForward(shape, dnnl::prop_kind::forward_training);
  const auto x = forward.src_desc(), out = forward.dst_desc();
  const DnnlWindows w(shape);
  const dnnl::pooling_backward::primitive_desc backward(
      {AlgorithmOf(*shape.attrs), x, out, w.strides, w.sizes, w.begin, w.end}, DnnlAttributes(),
      DnnlCpuEngine(), forward);
  const auto dout = ArgumentOf(DNNL_ARG_DIFF_DST, shape.out, shape, out);
  const auto dx = ArgumentOf(DNNL_ARG_DIFF_SRC, shape.x, shape, x);
  if (!shape.attrs->is_max) {
    return DnnlPrimitive(dnnl::pooling_backward(backward), backward.scratchpad_desc(), {dout},
                         {dx});
  }
  return DnnlPrimitive({dnnl::pooling_forward(forward), forward.scratchpad_desc(),
                        ArgumentOf(DNNL_ARG_SRC, shape.x, shape, x), out, forward.workspace_desc()},
                       dnnl::pooling_backward(backward), backward.scratchpad_desc(), {dout}, dx);
}

// Whether the primitive is slower than a plain loop. Without AVX-512, it stores positions of maxima
// byte by byte if a block of channels is not full.
bool IsSlowForGradient(const PoolAttrs& attrs, const Dims& x) {
  constexpr unsigned kWide = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);  // bits
  static const bool has_wide_vectors =
      (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kWide) == kWide;
  return attrs.is_max && !attrs.channels_last && x[1] % 8 != 0 && !has_wide_vectors;
}

// The primitive for the shape of the last step; nullptr if oneDNN has none.
class OfShape {
 public:
  explicit OfShape(DnnlPrimitive (*make)(const PoolShape&)) : make_(make) {}

  DnnlPrimitive* operator()(const PoolAttrs& attrs, const Dims& x, const Dims& out) {
    const PoolShape shape = {ChannelsFirst(x, attrs.channels_last),
                             ChannelsFirst(out, attrs.channels_last), &attrs};
    if (!shape.IsForDnnl()) return nullptr;
    return &of_shape_({x, out}, [&](const auto&) { return make_(shape); });
  }

 private:
  DnnlPrimitive (*make_)(const PoolShape&);
  DnnlOfShape<std::pair<Dims, Dims>> of_shape_;
};

// The windows of the last step, of maxima; nullptr if channels come first, for which oneDNN is
// faster, if windows share elements, or if oneDNN does not have them.
class DisjointOfShape {
 public:
  const DisjointWindows* operator()(const PoolAttrs& attrs, const Dims& x, const Dims& out) {
    if (!attrs.is_max || !attrs.channels_last) return nullptr;
    if (x != x_ || out != out_) {
      const PoolShape shape = {ChannelsFirst(x, attrs.channels_last),
                               ChannelsFirst(out, attrs.channels_last), &attrs};
      windows_ = shape.IsForDnnl() ? Pooling(attrs, x, out).Disjoint() : absl::nullopt;
      x_ = x;
      out_ = out;
    }
    return windows_.has_value() ? &*windows_ : nullptr;
  }

 private:
  Dims x_, out_;
  absl::optional<DisjointWindows> windows_;
};

// --- Kernels -------------------------------------------------------------------------------------

struct PoolSlots {
  const char *x = "X", *out = "Out";
};

// Mask, if present: the index of each maximum, the first one of equal ones.
absl::StatusOr<Kernel> Pool(OpKernel op, size_t space, PoolSlots slots) {
  const In x = op.in(slots.x);
  const Out out = op.out(slots.out);
  const Out mask = op.spec().schema->FindOutput("Mask") != nullptr ? op.out("Mask") : Out();
  op.Supports(Floats(x));
  WEFT_ASSIGN_OR_RETURN(const PoolAttrs attrs, PoolAttrs::Read(op.spec(), space));
  return op.Make(Floats(x), [=](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    OfShape made(MakeForward);
    if (std::is_same_v<T, float> && !mask) made(attrs, x(types).dims(), out(types).dims());
    return [=, of_shape = made](const KernelContext& ctx) mutable {
      const T* from = x.data<T>(ctx);
      T* to = out.data<T>(ctx);
      if constexpr (std::is_same_v<T, float>) {
        DnnlPrimitive* const primitive =
            mask ? nullptr : of_shape(attrs, x(ctx).dims(), out(ctx).dims());
        if (primitive != nullptr) return primitive->Run({from}, {to});
      }
      const Pooling pooling(attrs, x(ctx).dims(), out(ctx).dims());
      int32_t* places = mask.data_or_null<int32_t>(ctx);
      pooling.ForEachWindow([&](int64_t k, auto window, int64_t divisor) {
        if (attrs.is_max) {
          T largest = std::numeric_limits<T>::lowest();
          int64_t place_of_largest = -1;
          window([&](int64_t i, int64_t place) {
            if (from[i] <= largest) return;
            largest = from[i];
            place_of_largest = place;
          });
          to[k] = largest;
          if (places != nullptr) places[k] = static_cast<int32_t>(place_of_largest);
        } else if (attrs.norm != 0) {
          double sum = 0;
          window([&](int64_t i, int64_t) { sum += std::pow(from[i], attrs.norm); });
          to[k] = static_cast<T>(std::pow(sum, 1 / attrs.norm));
        } else {
          T sum = 0;
          window([&](int64_t i, int64_t) { sum += from[i]; });
          to[k] = sum / divisor;
        }
      });
    };
  });
}

// The gradient of a maximum goes to the element at its index in Mask or, without Mask, to the first
// element that is equal to it.
absl::StatusOr<Kernel> PoolGrad(OpKernel op, size_t space, PoolSlots slots) {
  const bool is_indexed = op.spec().schema->FindInput("Mask") != nullptr;
  const In x = op.in(slots.x), dout = op.in(absl::StrCat(slots.out, "@GRAD"));
  const In out = is_indexed ? In() : op.in(slots.out), mask = is_indexed ? op.in("Mask") : In();
  const Out dx = op.out(absl::StrCat(slots.x, "@GRAD"));
  op.Supports(Floats(x));
  WEFT_ASSIGN_OR_RETURN(const PoolAttrs attrs, PoolAttrs::Read(op.spec(), space));
  return op.Make(Floats(x), [=](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    OfShape made(MakeBackward);
    DisjointOfShape found;
    const bool is_slow = IsSlowForGradient(attrs, x(types).dims());
    if (std::is_same_v<T, float> && !is_indexed &&
        found(attrs, x(types).dims(), dout(types).dims()) == nullptr && !is_slow) {
      made(attrs, x(types).dims(), dout(types).dims());
    }
    return [=, of_shape = made, disjoint = found](const KernelContext& ctx) mutable {
      const T *xs = x.data<T>(ctx), *douts = dout.data<T>(ctx);
      T* to = dx.data<T>(ctx);
      if constexpr (std::is_same_v<T, float>) {
        const DisjointWindows* const windows =
            is_indexed ? nullptr : disjoint(attrs, x(ctx).dims(), dout(ctx).dims());
        if (windows != nullptr) {
          return windows->Gradient(x(ctx).size() / windows->image_size(), xs, douts, to);
        }
        if (!is_indexed && IsSlowForGradient(attrs, x(ctx).dims())) {
          std::fill_n(to, dx(ctx).size(), T(0));
          Pooling(attrs, x(ctx).dims(), dout(ctx).dims())
              .ForEachMaximum(xs, [=](int64_t k, int64_t i) {
                if (i >= 0) to[i] += douts[k];
              });
          return;
        }
        DnnlPrimitive* const primitive =
            is_indexed ? nullptr : of_shape(attrs, x(ctx).dims(), dout(ctx).dims());
        if (primitive != nullptr && attrs.is_max) return primitive->Run({xs, douts}, {to});
        if (primitive != nullptr) return primitive->Run({douts}, {to});
      }
      const Pooling pooling(attrs, x(ctx).dims(), dout(ctx).dims());
      std::fill_n(to, dx(ctx).size(), T(0));
      // is_chosen(k, i, index): whether element i of X, with that index, is the maximum k.
      const auto add_to_maxima = [&](auto is_chosen) {
        pooling.ForEachWindow([&](int64_t k, auto window, int64_t) {
          int64_t first = -1;
          window([&](int64_t i, int64_t index) {
            if (first < 0 && is_chosen(k, i, index)) first = i;
          });
          if (first >= 0) to[first] += douts[k];
        });
      };
      if (is_indexed) {
        const int32_t* indices = mask.data<int32_t>(ctx);
        add_to_maxima([=](int64_t k, int64_t, int64_t index) { return index == indices[k]; });
      } else if (attrs.is_max) {
        const T* maxima = out.data<T>(ctx);
        add_to_maxima([=](int64_t k, int64_t i, int64_t) { return xs[i] == maxima[k]; });
      } else if (attrs.norm != 0) {
        const T* roots = out.data<T>(ctx);
        pooling.ForEachWindow([&](int64_t k, auto window, int64_t) {
          window([&](int64_t i, int64_t) {
            const double ratio = static_cast<double>(xs[i]) / roots[k];
            to[i] += static_cast<T>(douts[k] * std::pow(ratio, attrs.norm - 1));
          });
        });
      } else {
        pooling.ForEachWindow([&](int64_t k, auto window, int64_t divisor) {
          const T part = douts[k] / divisor;
          window([&](int64_t i, int64_t) { to[i] += part; });
        });
      }
    };
  });
}

}  // namespace

void AddPoolKernels(KernelTable* table) {
  for (const size_t space : {2, 3}) {
    const auto bind = [space](auto factory) {
      return [=](const KernelSpec& spec) { return factory(spec, space, PoolSlots()); };
    };
    const std::string plain = absl::StrCat("pool", space, "d");
    const std::string indexed = absl::StrCat("max_pool", space, "d_with_index");
    table->Add(plain, bind(Pool), bind(PoolGrad));
    table->Add(indexed, bind(Pool), bind(PoolGrad));
  }
  constexpr PoolSlots kLowerCase = {"x", "out"};
  table->Add(
      "lp_pool2d", [=](OpKernel op) { return Pool(op, 2, kLowerCase); },
      [=](OpKernel op) { return PoolGrad(op, 2, kLowerCase); });
}

}  // namespace weft
