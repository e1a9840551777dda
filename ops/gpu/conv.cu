// Convolution of images of two or three dimensions, and its gradients (ops/cpu/conv_shape.h).
// Without groups, it is a product of matrices (ops/gpu/conv_products.h). With groups, a thread sums
// the products that make one element of an image, a block those of one element of a filter. No
// element is written twice, so results do not depend on timing.
#include <cstdint>
#include <memory>
#include <string>

#include "base/status_macros.h"
#include "ops/cpu/conv_shape.h"
#include "ops/gpu/conv_images.h"
#include "ops/gpu/conv_products.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

using conv::ConvImages;
using conv::Image;

// Element i of the destination.
template <typename T>
struct DestinationElement {
  ConvImages images;
  const T *source, *filter;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const ConvImages& m = images;
    const Image::Place p = m.destination.PlaceOf(i);
    const int64_t first_channel = p.c / m.destination_channels * m.source_channels;
    T sum = 0;
    for (int64_t kz = 0; kz < m.filter.size[0]; ++kz) {
      const int64_t z = m.windows[0].SourceOf(p.at[0], kz);
      if (!m.source.Has(0, z)) continue;
      for (int64_t ky = 0; ky < m.filter.size[1]; ++ky) {
        const int64_t y = m.windows[1].SourceOf(p.at[1], ky);
        if (!m.source.Has(1, y)) continue;
        for (int64_t kx = 0; kx < m.filter.size[2]; ++kx) {
          const int64_t x = m.windows[2].SourceOf(p.at[2], kx);
          if (!m.source.Has(2, x)) continue;
          const T* element = source + m.source.Offset(p.n, first_channel, z, y, x);
          const T* factor = filter + m.filter.Offset(p.c, 0, kz, ky, kx);
          for (int64_t c = 0; c < m.source_channels; ++c) {
            sum += element[c * m.source.steps[1]] * factor[c * m.filter.steps[1]];
          }
        }
      }
    }
    to[i] = sum;
  }
};

// Element i of the gradient of the source: of all positions at which the filter meets it.
template <typename T>
struct SourceElement {
  ConvImages images;
  const T *filter, *destination;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const ConvImages& m = images;
    const Image::Place p = m.source.PlaceOf(i);
    const int64_t first_channel = p.c / m.source_channels * m.destination_channels;
    const int64_t channel = p.c % m.source_channels;
    T sum = 0;
    for (int64_t kz = 0; kz < m.filter.size[0]; ++kz) {
      const int64_t z = m.windows[0].PositionOf(p.at[0], kz);
      if (!m.destination.Has(0, z)) continue;
      for (int64_t ky = 0; ky < m.filter.size[1]; ++ky) {
        const int64_t y = m.windows[1].PositionOf(p.at[1], ky);
        if (!m.destination.Has(1, y)) continue;
        for (int64_t kx = 0; kx < m.filter.size[2]; ++kx) {
          const int64_t x = m.windows[2].PositionOf(p.at[2], kx);
          if (!m.destination.Has(2, x)) continue;
          const T* element = destination + m.destination.Offset(p.n, first_channel, z, y, x);
          const T* factor = filter + m.filter.Offset(first_channel, channel, kz, ky, kx);
          for (int64_t c = 0; c < m.destination_channels; ++c) {
            sum += element[c * m.destination.steps[1]] * factor[c * m.filter.steps[0]];
          }
        }
      }
    }
    to[i] = sum;
  }
};

// Element i of the gradient of the filter: of all images and positions, in double precision.
template <typename T>
struct FilterElement {
  ConvImages images;
  const T *source, *destination;
  T* to;
  WEFT_DEVICE void operator()(int64_t i, const gpu::Block& block) const {
    const ConvImages& m = images;
    const Image::Place k = m.filter.PlaceOf(i);  // n: channel of the destination
    const int64_t channel = k.n / m.destination_channels * m.source_channels + k.c;
    const int64_t* const size = m.destination.size;
    const double sum = block.Sum<double>(
        m.destination.batch * size[0] * size[1] * size[2], [&](int64_t position) -> double {
          const int64_t at_x = position % size[2], at_y = position / size[2] % size[1];
          const int64_t at_z = position / size[2] / size[1] % size[0];
          const int64_t n = position / size[2] / size[1] / size[0];
          const int64_t z = m.windows[0].SourceOf(at_z, k.at[0]);
          const int64_t y = m.windows[1].SourceOf(at_y, k.at[1]);
          const int64_t x = m.windows[2].SourceOf(at_x, k.at[2]);
          if (!m.source.Has(0, z) || !m.source.Has(1, y) || !m.source.Has(2, x)) return 0;
          return static_cast<double>(source[m.source.Offset(n, channel, z, y, x)]) *
                 static_cast<double>(destination[m.destination.Offset(n, k.n, at_z, at_y, at_x)]);
        });
    block.Once([&] { to[i] = static_cast<T>(sum); });
  }
};

// Computes one of the three from the two others.
class Convolution {
 public:
  explicit Convolution(bool tf32) : products_(tf32) {}

  template <typename T>
  absl::Status Destination(const KernelContext& ctx, const ConvShape& shape, const T* source,
                           const T* filter, Tensor* to) {
    if (shape.groups == 1) return products_.Destination(ctx, shape, source, filter, to);
    return ForEach(ctx, to->size(),
                   DestinationElement<T>{ConvImages(shape), source, filter, to->data<T>()});
  }
  template <typename T>
  absl::Status Source(const KernelContext& ctx, const ConvShape& shape, const T* filter,
                      const T* destination, Tensor* to) {
    if (shape.groups == 1) return products_.Source(ctx, shape, filter, destination, to);
    return ForEach(ctx, to->size(),
                   SourceElement<T>{ConvImages(shape), filter, destination, to->data<T>()});
  }
  template <typename T>
  absl::Status Filter(const KernelContext& ctx, const ConvShape& shape, const T* source,
                      const T* destination, Tensor* to) {
    if (shape.groups == 1) return products_.Filter(ctx, shape, source, destination, to);
    const ConvImages images(shape);
    return ForEachRow(ctx, to->size(), images.destination.batch * images.destination.positions(),
                      FilterElement<T>{images, source, destination, to->data<T>()});
  }

 private:
  conv::Products products_;
};

absl::StatusOr<Kernel> Conv(OpKernel op, ConvKind kind, size_t space) {
  const In input = op.in("Input"), filter = op.in("Filter");
  const Out output = op.out("Output");
  WEFT_ASSIGN_OR_RETURN(const ConvAttrs attrs, ConvAttrs::Read(op.attrs(), kind, space));
  if (attrs.groups == 1) WEFT_RETURN_IF_ERROR(GpuGemm::Load());
  return op.Make(Floats(input), [=, convolution = std::make_shared<Convolution>(op.spec().tf32)](
                                    const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ConvShape shape = attrs.Shape(input(ctx), filter(ctx), output(ctx));
    const T *image = input.data<T>(ctx), *factors = filter.data<T>(ctx);
    return kind == ConvKind::kTransposed
               ? convolution->Source(ctx, shape, factors, image, &output(ctx))
               : convolution->Destination(ctx, shape, image, factors, &output(ctx));
  });
}

absl::StatusOr<Kernel> ConvGrad(OpKernel op, ConvKind kind, size_t space) {
  const In input = op.in("Input"), filter = op.in("Filter"), doutput = op.in("Output@GRAD");
  const Out dinput = op.out("Input@GRAD"), dfilter = op.out("Filter@GRAD");
  WEFT_ASSIGN_OR_RETURN(const ConvAttrs attrs, ConvAttrs::Read(op.attrs(), kind, space));
  if (attrs.groups == 1) WEFT_RETURN_IF_ERROR(GpuGemm::Load());
  const bool transposed = kind == ConvKind::kTransposed;
  return op.Make(
      Floats(input),
      [=, of_input = std::make_shared<Convolution>(op.spec().tf32),
       of_filter = std::make_shared<Convolution>(op.spec().tf32)](const KernelContext& ctx,
                                                                  auto zero) -> absl::Status {
        using T = decltype(zero);
        const ConvShape shape = attrs.Shape(input(ctx), filter(ctx), doutput(ctx));
        const T *x = input.data<T>(ctx), *w = filter.data<T>(ctx), *dy = doutput.data<T>(ctx);
        const T *source = transposed ? dy : x, *destination = transposed ? x : dy;
        if (Tensor* to = dinput.get(ctx)) {
          WEFT_RETURN_IF_ERROR(transposed ? of_input->Destination(ctx, shape, source, w, to)
                                          : of_input->Source(ctx, shape, w, destination, to));
        }
        Tensor* const to = dfilter.get(ctx);
        if (to == nullptr) return absl::OkStatus();
        return of_filter->Filter(ctx, shape, source, destination, to);
      });
}

void AddConv(KernelTable* table, const std::string& type, ConvKind kind, size_t space) {
  table->Add(
      type, [=](const KernelSpec& spec) { return Conv(spec, kind, space); },
      [=](const KernelSpec& spec) { return ConvGrad(spec, kind, space); });
}

}  // namespace

void AddGpuConvKernels(KernelTable* table) {
  AddConv(table, "conv2d", ConvKind::kForward, 2);
  AddConv(table, "depthwise_conv2d", ConvKind::kForward, 2);
  AddConv(table, "conv3d", ConvKind::kForward, 3);
  AddConv(table, "conv2d_transpose", ConvKind::kTransposed, 2);
  AddConv(table, "depthwise_conv2d_transpose", ConvKind::kTransposed, 2);
  AddConv(table, "conv3d_transpose", ConvKind::kTransposed, 3);
}

}  // namespace weft
