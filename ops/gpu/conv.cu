// Convolution of images of two or three dimensions, and its gradients (ops/cpu/conv_shape.h): a
// thread sums the products that make one element of an image, a block those of one element of a
// filter. No element is written twice, so results do not depend on timing.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/status_macros.h"
#include "ops/cpu/conv_shape.h"
#include "ops/cpu/image.h"
#include "ops/formulas/window.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr int kSpace = 3;  // a missing spatial dimension is the first of these, with one element

// An image or a filter. Of a filter, batch and channels are its first two dimensions.
struct Image {
  int64_t batch = 1, channels = 1;
  int64_t size[kSpace] = {1, 1, 1};
  int64_t steps[2 + kSpace];
  bool channels_last = false;

  Image(const Dims& dims, bool has_channels_last)
      : batch(dims[0]), channels(dims[1]), channels_last(has_channels_last) {
    const size_t space = dims.size() - 2;
    std::copy(dims.begin() + 2, dims.end(), size + kSpace - space);
    const std::array<int64_t, 2 + kSpace> all = ImageSteps(dims, has_channels_last);
    std::copy(all.begin(), all.end(), steps);
  }

  struct Place {
    int64_t n, c, at[kSpace];
  };
  // Of element i in memory.
  WEFT_DEVICE Place PlaceOf(int64_t i) const {
    Place place;
    if (channels_last) {
      place.c = i % channels;
      i /= channels;
    }
    for (int d = kSpace - 1; d >= 0; --d) {
      place.at[d] = i % size[d];
      i /= size[d];
    }
    if (!channels_last) {
      place.c = i % channels;
      i /= channels;
    }
    place.n = i;
    return place;
  }
  WEFT_DEVICE int64_t Offset(int64_t n, int64_t c, int64_t z, int64_t y, int64_t x) const {
    return n * steps[0] + c * steps[1] + z * steps[2] + y * steps[3] + x * steps[4];
  }
  WEFT_DEVICE bool Has(int d, int64_t at) const { return at >= 0 && at < size[d]; }
  int64_t positions() const { return size[0] * size[1] * size[2]; }
};

struct ConvImages {
  Image source, filter, destination;
  formulas::FilterWindow windows[kSpace];
  int64_t source_channels, destination_channels;  // of a group

  explicit ConvImages(const ConvShape& shape)
      : source(shape.source, shape.channels_last),
        filter(shape.filter, /*has_channels_last=*/false),
        destination(shape.destination, shape.channels_last),
        source_channels(shape.source[1] / shape.groups),
        destination_channels(shape.destination[1] / shape.groups) {
    const size_t first = kSpace - shape.space();
    for (size_t i = 0; i < shape.space(); ++i) windows[first + i] = shape.FilterWindowAt(i);
  }
};

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

// Each computes one of the three from the two others.

template <typename T>
absl::Status ComputeDestination(const KernelContext& ctx, const ConvShape& shape, const T* source,
                                const T* filter, T* to) {
  return ForEach(ctx, NumElements(shape.destination),
                 DestinationElement<T>{ConvImages(shape), source, filter, to});
}

template <typename T>
absl::Status ComputeSource(const KernelContext& ctx, const ConvShape& shape, const T* filter,
                           const T* destination, T* to) {
  return ForEach(ctx, NumElements(shape.source),
                 SourceElement<T>{ConvImages(shape), filter, destination, to});
}

template <typename T>
absl::Status ComputeFilter(const KernelContext& ctx, const ConvShape& shape, const T* source,
                           const T* destination, T* to) {
  const ConvImages images(shape);
  return ForEachRow(ctx, NumElements(shape.filter),
                    images.destination.batch * images.destination.positions(),
                    FilterElement<T>{images, source, destination, to});
}

absl::StatusOr<Kernel> Conv(OpKernel op, ConvKind kind, size_t space) {
  const In input = op.in("Input"), filter = op.in("Filter");
  const Out output = op.out("Output");
  WEFT_ASSIGN_OR_RETURN(const ConvAttrs attrs, ConvAttrs::Read(op.attrs(), kind, space));
  return op.Make(Floats(input), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ConvShape shape = attrs.Shape(input(ctx), filter(ctx), output(ctx));
    const T *image = input.data<T>(ctx), *factors = filter.data<T>(ctx);
    T* to = output.data<T>(ctx);
    return kind == ConvKind::kTransposed ? ComputeSource(ctx, shape, factors, image, to)
                                         : ComputeDestination(ctx, shape, image, factors, to);
  });
}

absl::StatusOr<Kernel> ConvGrad(OpKernel op, ConvKind kind, size_t space) {
  const In input = op.in("Input"), filter = op.in("Filter"), doutput = op.in("Output@GRAD");
  const Out dinput = op.out("Input@GRAD"), dfilter = op.out("Filter@GRAD");
  WEFT_ASSIGN_OR_RETURN(const ConvAttrs attrs, ConvAttrs::Read(op.attrs(), kind, space));
  const bool transposed = kind == ConvKind::kTransposed;
  return op.Make(Floats(input), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const ConvShape shape = attrs.Shape(input(ctx), filter(ctx), doutput(ctx));
    const T *x = input.data<T>(ctx), *w = filter.data<T>(ctx), *dy = doutput.data<T>(ctx);
    const T *source = transposed ? dy : x, *destination = transposed ? x : dy;
    if (T* to = dinput.data_or_null<T>(ctx)) {
      WEFT_RETURN_IF_ERROR(transposed ? ComputeDestination(ctx, shape, source, w, to)
                                      : ComputeSource(ctx, shape, w, destination, to));
    }
    T* const to = dfilter.data_or_null<T>(ctx);
    return to == nullptr ? absl::OkStatus() : ComputeFilter(ctx, shape, source, destination, to);
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
