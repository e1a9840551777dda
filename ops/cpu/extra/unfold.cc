// Windows of an image as columns of a matrix (im2col), and back (col2im).
#include <cstdint>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/op_kernel.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// Calls visit(index in Y, index in X, or kOutside) for all of Y = [batch, channels, rows and
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
    AddToImage<T>(dy(ctx), &dx(ctx),
                  [&](auto visit) { ForEachUnfolded(attrs, dx(ctx).dims(), visit); });
  });
}

// The reverse: elements with the same index are added.
absl::StatusOr<Kernel> Fold(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out y = op.out("Y");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    AddToImage<T>(x(ctx), &y(ctx),
                  [&](auto visit) { ForEachUnfolded(attrs, y(ctx).dims(), visit); });
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

}  // namespace

void AddUnfoldKernels(KernelTable* table) {
  table->Add("unfold", Unfold);
  table->Add("unfold_grad", UnfoldGrad);
  table->Add("fold", Fold);
  table->Add("fold_grad", FoldGrad);
}

}  // namespace weft
