// Elements of images copied: padding, windows as columns of a matrix (im2col) and back (col2im),
// and unpooling.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

template <bool is_grad>
absl::StatusOr<Kernel> Pad(OpKernel op) {
  const In x = op.in(is_grad ? "Out@GRAD" : "X");
  const Out out = op.out(is_grad ? "X@GRAD" : "Out");
  const double value = op.attrs().Float("pad_value");
  const auto step = [=, paddings = op.attrs().Ints("paddings")](const KernelContext& ctx,
                                                                auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    if (is_grad) return ReadView(PaddedView(out(ctx).dims(), x(ctx).dims(), paddings), from, to);
    std::fill_n(to, out(ctx).size(), static_cast<T>(value));
    WriteView(PaddedView(x(ctx).dims(), out(ctx).dims(), paddings), from, to);
  };
  return is_grad ? op.Make(Floats(x), step) : op.Make(AllTypesButHalf(x), step);
}

// The source element for position `i` of a dimension of `size`; 0 is the first element.
int64_t ShownBy(const std::string& mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  if (mode == "replicate") return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "reflect") return i < 0 ? -i : 2 * (size - 1) - i;
  if (mode == "circular") return (i % size + size) % size;
  return kOutside;
}

// Calls visit(index in the padded image, index in the image, or kOutside) for the padded image.
template <typename Visit>
void ForEachPadded(const OpAttrs& attrs, const Dims& image, const Dims& padded, Visit visit) {
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  const std::string& mode = attrs.String("mode");
  const size_t first = attrs.String("data_format") == "NDHWC" ? 1 : 2;
  // Per dimension, the offset in the image of each position's source element.
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

absl::StatusOr<Kernel> Pad3d(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = op.attrs().Float("value");
  return op.Make(FloatsAndInts(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    const T outside = Saturated<T>(value);
    ForEachPadded(attrs, x(ctx).dims(), out(ctx).dims(), [&](int64_t place, int64_t shown) {
      to[place] = shown == kOutside ? outside : from[shown];
    });
  });
}

absl::StatusOr<Kernel> Pad3dGrad(OpKernel op) {
  op.Ignore({"X"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    AddToImage<T>(dout(ctx), &dx(ctx), [&](auto visit) {
      ForEachPadded(attrs, dx(ctx).dims(), dout(ctx).dims(), visit);
    });
  });
}

// Calls visit(index in the columns, index in the image or kOutside) for all columns, which are
// [batch, channels, rows and columns of the window; positions].
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

// to = the windows of the image `from` as columns. Elements in the padding are 0.
absl::StatusOr<Kernel> ImageToColumns(const KernelSpec& spec, const char* from_slot,
                                      const char* to_slot) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In image = op.in(from_slot);
  const Out columns = op.out(to_slot);
  return op.Make(Floats(image), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = image.data<T>(ctx);
    T* to = columns.data<T>(ctx);
    ForEachUnfolded(attrs, image(ctx).dims(), [&](int64_t place, int64_t element) {
      to[place] = element == kOutside ? T(0) : from[element];
    });
  });
}

// The reverse, and the gradient: to = the image with the sum of all columns that have an element.
absl::StatusOr<Kernel> ColumnsToImage(const KernelSpec& spec, const char* from_slot,
                                      const char* to_slot) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In columns = op.in(from_slot);
  const Out image = op.out(to_slot);
  return op.Make(Floats(columns), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    AddToImage<T>(columns(ctx), &image(ctx),
                  [&](auto visit) { ForEachUnfolded(attrs, image(ctx).dims(), visit); });
  });
}

// Calls visit(element, index in Out) for all of Indices.
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

// The inverse of max pooling: Out = X at the positions of Indices, 0 elsewhere.
template <bool is_grad>
absl::StatusOr<Kernel> Unpool(OpKernel op) {
  op.Ignore({"X", "Out"});
  const In x = op.in(is_grad ? "Out@GRAD" : "X"), indices = op.in("Indices");
  const Out out = op.out(is_grad ? "X@GRAD" : "Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    if (!is_grad) std::fill_n(to, out(ctx).size(), T(0));
    const Dims& image = is_grad ? x(ctx).dims() : out(ctx).dims();
    return ForEachIndex(indices(ctx), image, [&](int64_t element, int64_t place) {
      to[is_grad ? element : place] = from[is_grad ? place : element];
    });
  });
}

}  // namespace

void AddImageCopyKernels(KernelTable* table) {
  table->Add("pad", Pad</*is_grad=*/false>);
  table->Add("pad_grad", Pad</*is_grad=*/true>);
  table->Add("pad3d", Pad3d);
  table->Add("pad3d_grad", Pad3dGrad);
  table->Add("unfold", [](const KernelSpec& spec) { return ImageToColumns(spec, "X", "Y"); });
  table->Add("unfold_grad",
             [](const KernelSpec& spec) { return ColumnsToImage(spec, "Y@GRAD", "X@GRAD"); });
  table->Add("fold", [](const KernelSpec& spec) { return ColumnsToImage(spec, "X", "Y"); });
  table->Add("fold_grad",
             [](const KernelSpec& spec) { return ImageToColumns(spec, "Y@GRAD", "X@GRAD"); });
  table->Add("unpool", Unpool</*is_grad=*/false>);
  table->Add("unpool_grad", Unpool</*is_grad=*/true>);
}

}  // namespace weft
