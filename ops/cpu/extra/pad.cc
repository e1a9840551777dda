// Tensors, and images, padded.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/image.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The position of X in the Out of pad.
View PaddedView(const Dims& x, const Dims& out, const std::vector<int64_t>& paddings) {
  View view{x, RowMajorStrides(out), 0};
  for (size_t d = 0; d < x.size(); ++d) view.offset += paddings[2 * d] * view.strides[d];
  return view;
}

absl::StatusOr<Kernel> Pad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = spec.attrs.Float("pad_value");
  return op.Make(AllTypesButHalf(x),
                 [=, paddings = spec.attrs.Ints("paddings")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   std::fill_n(out.data<T>(ctx), out(ctx).size(), static_cast<T>(value));
                   WriteView(PaddedView(x(ctx).dims(), out(ctx).dims(), paddings), x.data<T>(ctx),
                             out.data<T>(ctx));
                 });
}

absl::StatusOr<Kernel> PadGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout),
                 [=, paddings = spec.attrs.Ints("paddings")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   ReadView(PaddedView(dx(ctx).dims(), dout(ctx).dims(), paddings),
                            dout.data<T>(ctx), dx.data<T>(ctx));
                 });
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

absl::StatusOr<Kernel> Pad3d(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = spec.attrs.Float("value");
  return op.Make(FloatsAndInts(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
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
    AddToImage<T>(dout(ctx), &dx(ctx), [&](auto visit) {
      ForEachPadded(attrs, dx(ctx).dims(), dout(ctx).dims(), visit);
    });
  });
}

}  // namespace

void AddPadKernels(KernelTable* table) {
  table->Add("pad", Pad);
  table->Add("pad_grad", PadGrad);
  table->Add("pad3d", Pad3d);
  table->Add("pad3d_grad", Pad3dGrad);
}

}  // namespace weft
