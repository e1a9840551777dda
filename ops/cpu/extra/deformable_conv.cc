// Convolution with a deformable window: Offset moves each element of the window, down and across,
// and Mask, which deformable_conv_v1 lacks, weights it. For every position of the window, with k
// over the filter (channels omitted)
//   Output[at] = Σ_k Filter[k] column[k, at]
//   column[k, at] = Mask[k, at] Input(at stride - padding + k dilation + Offset[k, at])
// where Input is interpolated linearly between elements, and 0 outside. Channels of the input are
// split into deformable_groups, each with separate offsets and mask.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/gemm.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// A point in an image of height × width.
template <typename T>
struct Place {
  T y, x;
  int64_t height, width;

  bool IsInside() const { return y > -1 && x > -1 && y < height && x < width; }

  // Calls visit(element, weight, dweight/dy, dweight/dx) for the neighbors inside the image.
  template <typename Visit>
  void ForEachNeighbor(Visit visit) const {
    const auto top = static_cast<int64_t>(std::floor(y)),
               left = static_cast<int64_t>(std::floor(x));
    const T down = y - top, across = x - left;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        if (top + i < 0 || top + i >= height || left + j < 0 || left + j >= width) continue;
        const T wy = i == 1 ? down : 1 - down, wx = j == 1 ? across : 1 - across;
        visit((top + i) * width + left + j, wy * wx, i == 1 ? wx : -wx, j == 1 ? wy : -wy);
      }
    }
  }
};

struct DeformableConv {
  std::vector<Window> windows;
  int64_t groups, deformable_groups;
  In input, offset, mask, filter;

  static absl::StatusOr<DeformableConv> Make(const KernelSpec& spec, OpKernel* op) {
    WEFT_ASSIGN_OR_RETURN(std::vector<Window> windows, ReadWindows(spec.attrs, 2));
    return DeformableConv{
        std::move(windows), spec.attrs.Int("groups"), spec.attrs.Int("deformable_groups"),
        op->in("Input"),    op->in("Offset"),         op->in("Mask"),
        op->in("Filter")};
  }

  int64_t Channels(const KernelContext& ctx) const { return input(ctx).dim(1); }
  // Rows of the columns: elements of the window, in all channels.
  int64_t Rows(const KernelContext& ctx) const {
    return Channels(ctx) * filter(ctx).dim(2) * filter(ctx).dim(3);
  }
  int64_t Positions(const KernelContext& ctx) const {
    return offset(ctx).dim(2) * offset(ctx).dim(3);
  }
  // The coordinate of element k of the window along an axis, before the offset.
  int64_t At(int axis, int64_t position, int64_t k) const {
    const Window& w = windows[axis];
    return position * w.stride - w.pad_begin + k * w.dilation;
  }

  // Calls visit(point, channel, index in the columns, in Offset, in Mask) for each element of the
  // columns of an image. The index in Offset is that of the movement down; the movement across is
  // `positions` later.
  template <typename T, typename Visit>
  void ForEachElement(const KernelContext& ctx, int64_t image, Visit visit) const {
    const int64_t height = input(ctx).dim(2), width = input(ctx).dim(3);
    const int64_t rows = filter(ctx).dim(2), columns = filter(ctx).dim(3);
    const int64_t out_width = offset(ctx).dim(3), positions = Positions(ctx);
    const int64_t channels = Channels(ctx), share = channels / deformable_groups;
    const T* offsets = offset.data<T>(ctx);
    for (int64_t row = 0; row < channels * rows * columns; ++row) {
      const int64_t channel = row / columns / rows, k = row % (rows * columns);
      const int64_t of_mask =
          ((image * deformable_groups + channel / share) * rows * columns + k) * positions;
      for (int64_t p = 0; p < positions; ++p) {
        const int64_t m = of_mask + p, o = 2 * of_mask + p;
        const Place<T> place = {
            static_cast<T>(At(0, p / out_width, k / columns)) + offsets[o],
            static_cast<T>(At(1, p % out_width, k % columns)) + offsets[o + positions], height,
            width};
        visit(place, channel, row * positions + p, o, m);
      }
    }
  }

  // One image's columns.
  template <typename T>
  void FillColumns(const KernelContext& ctx, int64_t image, T* columns) const {
    const int64_t size = input(ctx).dim(2) * input(ctx).dim(3);
    const T* from = input.data<T>(ctx) + image * Channels(ctx) * size;
    const T* masks = mask.data_or_null<T>(ctx);
    ForEachElement<T>(
        ctx, image, [&](const Place<T>& place, int64_t channel, int64_t i, int64_t, int64_t m) {
          T value = 0 * (place.y + place.x);  // NaN if an offset is NaN
          if (place.IsInside()) {
            place.ForEachNeighbor(
                [&](int64_t at, T weight, T, T) { value += weight * from[channel * size + at]; });
          }
          columns[i] = masks == nullptr ? value : value * masks[m];
        });
  }

  // Calls run(part of the filter, of the columns, of the output) for every group of channels, with
  // its position and size: output rows, filter columns, positions.
  template <typename Run>
  void ForEachGroup(const KernelContext& ctx, Run run) const {
    const int64_t positions = Positions(ctx);
    const int64_t m = filter(ctx).dim(0) / groups, k = Rows(ctx) / groups;
    for (int64_t g = 0; g < groups; ++g) {
      run(g * m * k, g * k * positions, g * m * positions, m, k, positions);
    }
  }
};

absl::StatusOr<Kernel> ConvDeformed(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const DeformableConv conv, DeformableConv::Make(op.spec(), &op));
  const Out output = op.out("Output");
  return op.Make(Floats(conv.input), [=, product = Gemm(Transpose::kNo, Transpose::kNo)](
                                         const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    std::vector<T> columns(conv.Rows(ctx) * conv.Positions(ctx));
    const T* filter = conv.filter.data<T>(ctx);
    const int64_t images = output(ctx).dim(0), size = output(ctx).size();
    for (int64_t n = 0; n < images; ++n) {
      conv.FillColumns(ctx, n, columns.data());
      T* to = output.data<T>(ctx) + n * (size / images);
      conv.ForEachGroup(ctx, [&](int64_t f, int64_t c, int64_t o, int64_t m, int64_t k, int64_t p) {
        product.Run(m, p, k, filter + f, columns.data() + c, to + o);
      });
    }
  });
}

// With dcolumn = Filterᵀ dOutput, the gradients of Input, Offset and Mask follow from the formula
// of the columns. The gradient of Filter is the sum over the images of dOutput columnᵀ.
absl::StatusOr<Kernel> ConvDeformedGrad(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const DeformableConv conv, DeformableConv::Make(op.spec(), &op));
  const In doutput = op.in("Output@GRAD");
  const Out dinput = op.out("Input@GRAD"), doffset = op.out("Offset@GRAD");
  const Out dmask = op.out("Mask@GRAD"), dfilter = op.out("Filter@GRAD");
  const auto step = [=, filter_product = Gemm(Transpose::kNo, Transpose::kYes),
                     column_product = Gemm(Transpose::kYes, Transpose::kNo)](
                        const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    T *dinputs = dinput.data_or_null<T>(ctx), *doffsets = doffset.data_or_null<T>(ctx);
    T *dmasks = dmask.data_or_null<T>(ctx), *dfilters = dfilter.data_or_null<T>(ctx);
    for (Tensor* to : {dinput.get(ctx), doffset.get(ctx), dmask.get(ctx), dfilter.get(ctx)}) {
      if (to != nullptr) std::fill_n(to->data<T>(), to->size(), T(0));
    }
    const Tensor& input = conv.input(ctx);
    const int64_t images = input.dim(0), size = input.dim(2) * input.dim(3);
    const int64_t positions = conv.Positions(ctx), channels = conv.Channels(ctx);
    std::vector<T> columns(conv.Rows(ctx) * positions), products(conv.filter(ctx).size());
    const T *filter = conv.filter.data<T>(ctx), *masks = conv.mask.data_or_null<T>(ctx);
    for (int64_t n = 0; n < images; ++n) {
      const T* from = doutput.data<T>(ctx) + n * (doutput(ctx).size() / images);
      if (dfilters != nullptr) {
        conv.FillColumns(ctx, n, columns.data());
        conv.ForEachGroup(
            ctx, [&](int64_t f, int64_t c, int64_t o, int64_t m, int64_t k, int64_t p) {
              filter_product.Run(m, k, p, from + o, columns.data() + c, products.data() + f);
            });
        for (size_t i = 0; i < products.size(); ++i) dfilters[i] += products[i];
      }
      conv.ForEachGroup(ctx, [&](int64_t f, int64_t c, int64_t o, int64_t m, int64_t k, int64_t p) {
        column_product.Run(k, p, m, filter + f, from + o, columns.data() + c);
      });
      conv.ForEachElement<T>(
          ctx, n, [&](const Place<T>& place, int64_t channel, int64_t i, int64_t o, int64_t m) {
            if (!place.IsInside()) return;
            const T* image = input.data<T>() + (n * channels + channel) * size;
            const T d = columns[i], weighted = masks == nullptr ? d : d * masks[m];
            place.ForEachNeighbor([&](int64_t at, T weight, T down, T across) {
              if (dinputs != nullptr)
                dinputs[(n * channels + channel) * size + at] += weighted * weight;
              if (dmasks != nullptr) dmasks[m] += d * weight * image[at];
              if (doffsets == nullptr) return;
              doffsets[o] += weighted * down * image[at];
              doffsets[o + positions] += weighted * across * image[at];
            });
          });
    }
  };
  return op.Make(Floats(conv.input), step);
}

}  // namespace

void AddDeformableConvKernels(KernelTable* table) {
  for (const std::string type : {"deformable_conv", "deformable_conv_v1"}) {
    table->Add(type, ConvDeformed);
    table->Add(type + "_grad", ConvDeformedGrad);
  }
}

}  // namespace weft
