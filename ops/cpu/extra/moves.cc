// Elements rearranged or repeated.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/cpu/view_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out[i] = X[i] broadcast to the dims of all; meshgrid: X[i] along dimension i.
enum class Repeats { kBroadcast, kMeshgrid };

template <Repeats how>
View RepeatedView(const Dims& x, const Dims& out, size_t i) {
  if (how == Repeats::kBroadcast) return ExpandedView(x, out);
  View view{out, Dims(out.size(), 0), 0};
  view.strides[i] = 1;
  return view;
}

template <Repeats how>
absl::StatusOr<Kernel> RepeatAll(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < x.count(); ++i) {
      if (out.get(ctx, i) == nullptr) continue;
      ReadView(RepeatedView<how>(x(ctx, i).dims(), out(ctx, i).dims(), i), x.elements<T>(ctx, i),
               out.elements<T>(ctx, i));
    }
  });
}

template <Repeats how>
absl::StatusOr<Kernel> RepeatAllGrad(OpKernel op) {
  op.Ignore({"X"});
  In dout = op.in("Out@GRAD");
  if (how == Repeats::kMeshgrid && !dout) dout = op.in("outputs@GRAD");
  if (!dout) return absl::InvalidArgumentError("input Out@GRAD: missing");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < dx.count(); ++i) {
      if (dx.get(ctx, i) == nullptr) continue;
      T* to = dx.data<T>(ctx, i);
      std::fill_n(to, dx(ctx, i).size(), T(0));
      AddToView(RepeatedView<how>(dx(ctx, i).dims(), dout(ctx, i).dims(), i), dout.data<T>(ctx, i),
                to);
    }
  });
}

// x reshaped, then transposed.
View Transposed(const Dims& dims, std::initializer_list<size_t> order) {
  const Dims strides = RowMajorStrides(dims);
  View view;
  for (size_t d : order) {
    view.extents.push_back(dims[d]);
    view.strides.push_back(strides[d]);
  }
  return view;
}

// Channels become r x r neighbours.
ViewOf PixelShuffle(const OpAttrs& attrs) {
  return [r = attrs.Int("upscale_factor"), channels_last = attrs.String("data_format") == "NHWC"](
             const Dims& x, const Dims&) {
    const Dims parts = channels_last ? Dims{x[0], x[1], x[2], x[3] / r / r, r, r}
                                     : Dims{x[0], x[1] / r / r, r, r, x[2], x[3]};
    return Transposed(parts, {0, 1, 4, 2, 5, 3});
  };
}

// r x r neighbours become channels.
ViewOf PixelUnshuffle(const OpAttrs& attrs) {
  return [r = attrs.Int("downscale_factor"), channels_last = attrs.String("data_format") == "NHWC"](
             const Dims& x, const Dims&) {
    if (channels_last) {
      return Transposed({x[0], x[1] / r, r, x[2] / r, r, x[3]}, {0, 1, 3, 5, 2, 4});
    }
    return Transposed({x[0], x[1], x[2] / r, r, x[3] / r, r}, {0, 1, 3, 5, 2, 4});
  };
}

// The channels of the groups in turn.
ViewOf InterleavedGroups(int64_t groups, bool channels_last) {
  return [=](const Dims& x, const Dims&) {
    if (channels_last) return Transposed({x[0] * x[1] * x[2], groups, x[3] / groups}, {0, 2, 1});
    return Transposed({x[0], groups, x[1] / groups, CountAfter(x, 1)}, {0, 2, 1, 3});
  };
}

ViewOf ChannelShuffle(const OpAttrs& attrs) {
  return InterleavedGroups(attrs.Int("groups"), attrs.String("data_format") == "NHWC");
}

ViewOf ShuffleChannel(const OpAttrs& attrs) {
  return InterleavedGroups(attrs.Int("group"), /*channels_last=*/false);
}

// Rotates the elements along dimensions: forwards by attribute shifts, or backwards. Without axes,
// the tensor counts as one row.
absl::StatusOr<Kernel> Roll(const KernelSpec& spec, const char* from, const char* to,
                            bool backwards) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.Make(
      RawElements{x}, [=, axes = spec.attrs.Ints("axis"), shifts = spec.attrs.Ints("shifts")](
                          const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const Dims dims = axes.empty() ? Dims{x(ctx).size()} : x(ctx).dims();
        Dims shift(dims.size(), 0);
        for (size_t i = 0; i < std::max<size_t>(axes.size(), 1); ++i) {
          const size_t axis = axes.empty() ? 0 : NormalizedAxis(axes[i], dims.size());
          const int64_t n = std::max<int64_t>(dims[axis], 1);
          shift[axis] = ((shift[axis] + (backwards ? -shifts[i] : shifts[i])) % n + n) % n;
        }
        const Dims strides = RowMajorStrides(dims);
        const T* source = x.elements<T>(ctx);
        T* target = out.elements<T>(ctx);
        for (int64_t i = 0; i < x(ctx).size(); ++i) {
          int64_t j = 0;
          for (size_t d = 0; d < dims.size(); ++d) {
            j += (i / strides[d] % dims[d] + shift[d]) % dims[d] * strides[d];
          }
          target[j] = source[i];
        }
      });
}

// In groups of seg_num frames, some channels shift by one frame in `direction`, equally many
// against it.
absl::StatusOr<Kernel> TemporalShift(const KernelSpec& spec, const char* from, const char* to,
                                     int direction) {
  OpKernel op(spec);
  const In x = op.in(from);
  const Out out = op.out(to);
  const int64_t frames = spec.attrs.Int("seg_num");
  const double ratio = spec.attrs.Float("shift_ratio");
  const bool channels_last = spec.attrs.String("data_format") == "NHWC";
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    const int64_t channels = channels_last ? dims[3] : dims[1];
    const int64_t image = dims[1] * dims[2] * dims[3];
    const int64_t inner = channels_last ? 1 : dims[2] * dims[3];
    const auto first = static_cast<int64_t>(channels * ratio);
    const auto second = static_cast<int64_t>(channels * 2 * ratio);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t frame = i / image % frames, channel = i / inner % channels;
      const int64_t step = int64_t{channel < first ? -1 : channel < second ? 1 : 0} * direction;
      const bool is_outside = frame + step < 0 || frame + step >= frames;
      out.elements<T>(ctx)[i] = is_outside ? T(0) : x.elements<T>(ctx)[i + step * image];
    }
  });
}

// --- frame ---------------------------------------------------------------------------------------

// Frames of a signal, hop_length apart: along the last axis as columns, along the first as rows.
ViewOf Frames(const OpAttrs& attrs) {
  return [first = attrs.Int("axis") == 0, hop = attrs.Int("hop_length")](const Dims& x,
                                                                         const Dims& out) {
    View view{out, RowMajorStrides(x), 0};
    const int64_t step = first ? view.strides.front() : view.strides.back();
    view.strides.insert(first ? view.strides.begin() : view.strides.end(), hop * step);
    return view;
  };
}

}  // namespace

void AddExtraMoveKernels(KernelTable* table) {
  table->Add("broadcast_tensors", RepeatAll<Repeats::kBroadcast>);
  table->Add("broadcast_tensors_grad", RepeatAllGrad<Repeats::kBroadcast>);
  table->Add("meshgrid", RepeatAll<Repeats::kMeshgrid>);
  table->Add("meshgrid_grad", RepeatAllGrad<Repeats::kMeshgrid>);
  AddView("channel_shuffle", ChannelShuffle, table);
  AddView("frame", Frames, table);
  AddView("pixel_shuffle", PixelShuffle, table);
  AddView("pixel_unshuffle", PixelUnshuffle, table);
  AddView("shuffle_channel", ShuffleChannel, table);
  table->Add("roll", [](const KernelSpec& spec) { return Roll(spec, "X", "Out", false); });
  table->Add("roll_grad", [](const KernelSpec& spec) {
    return Roll(spec, "Out@GRAD", "X@GRAD", /*backwards=*/true);
  });
  table->Add("temporal_shift",
             [](const KernelSpec& spec) { return TemporalShift(spec, "X", "Out", 1); });
  table->Add("temporal_shift_grad",
             [](const KernelSpec& spec) { return TemporalShift(spec, "Out@GRAD", "X@GRAD", -1); });
}

}  // namespace weft
