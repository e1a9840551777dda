// Convolutions without groups as products of matrices: for .cu files only.
//
// The columns of a source are a matrix with a row for each image and position of the window, which
// holds the elements under the window in the order of a filter: channels, then space. With it,
//   the destination is columns × filter'
//   the gradient of the columns is destination × filter, and that of the source adds it up
//   the gradient of the filter is destination' × columns
// where the destination has a row for each image and position, and the filter one for each of its
// channels. Columns are many times as large as the source, so they are made for some images at a
// time.
#ifndef WEFT_OPS_GPU_CONV_PRODUCTS_H_
#define WEFT_OPS_GPU_CONV_PRODUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/cpu/conv_shape.h"
#include "ops/gpu/conv_images.h"
#include "ops/gpu/gemm.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/tensor.h"

namespace weft::conv {

inline constexpr int64_t kColumnBytes = 256 << 20;

// Memory that kernels on a stream share, one after the other. Lives as long as a kernel that holds
// it. Thread-safe.
inline std::shared_ptr<Tensor> ScratchOf(const KernelContext& ctx, Memory* memory) {
  static auto* const mutex = new std::mutex();
  static auto* const all = new std::map<std::pair<Memory*, void*>, std::weak_ptr<Tensor>>();
  std::lock_guard<std::mutex> lock(*mutex);
  std::weak_ptr<Tensor>& entry = (*all)[{memory, ctx.stream}];
  std::shared_ptr<Tensor> scratch = entry.lock();
  if (scratch == nullptr) entry = scratch = std::make_shared<Tensor>(memory);
  return scratch;
}

// Element i of the columns, of images from `first` on.
template <typename T>
struct MakeColumn {
  ConvImages images;
  int64_t first;
  const T* source;
  T* columns;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t *k = images.filter.size, *d = images.destination.size;
    int64_t rest = i;
    const auto take = [&rest](int64_t size) -> int64_t {
      const int64_t at = rest % size;
      rest /= size;
      return at;
    };
    const int64_t kx = take(k[2]), ky = take(k[1]), kz = take(k[0]),
                  c = take(images.source.channels);
    const int64_t x = images.windows[2].SourceOf(take(d[2]), kx);
    const int64_t y = images.windows[1].SourceOf(take(d[1]), ky);
    const int64_t z = images.windows[0].SourceOf(take(d[0]), kz);
    const bool has = images.source.Has(0, z) && images.source.Has(1, y) && images.source.Has(2, x);
    columns[i] = has ? source[images.source.Offset(first + rest, c, z, y, x)] : T(0);
  }
};

// Element i of the source of images from `first` on: the sum of the columns that have it.
template <typename T>
struct AddColumns {
  ConvImages images;
  int64_t first;
  const T* columns;
  T* source;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t *k = images.filter.size, *d = images.destination.size;
    const Image::Place p = images.source.PlaceOf(i);
    T sum = 0;
    for (int64_t kz = 0; kz < k[0]; ++kz) {
      const int64_t z = images.windows[0].PositionOf(p.at[0], kz);
      if (!images.destination.Has(0, z)) continue;
      for (int64_t ky = 0; ky < k[1]; ++ky) {
        const int64_t y = images.windows[1].PositionOf(p.at[1], ky);
        if (!images.destination.Has(1, y)) continue;
        for (int64_t kx = 0; kx < k[2]; ++kx) {
          const int64_t x = images.windows[2].PositionOf(p.at[2], kx);
          if (!images.destination.Has(2, x)) continue;
          const int64_t row = ((p.n * d[0] + z) * d[1] + y) * d[2] + x;
          const int64_t column = ((p.c * k[0] + kz) * k[1] + ky) * k[2] + kx;
          sum += columns[row * (images.source.channels * k[0] * k[1] * k[2]) + column];
        }
      }
    }
    source[first * images.source.steps[0] + i] = sum;
  }
};

// Element i of an image with its channels last, from one with its channels first.
template <typename T>
struct PutChannelsLast {
  int64_t channels, positions;
  const T* from;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % channels, at = i / channels % positions, n = i / channels / positions;
    to[i] = from[(n * channels + c) * positions + at];
  }
};

// Computes one of source, filter and destination from the two others, for one shape after another.
class Products {
 public:
  // `column_bytes`: of the columns that are made at a time, but for those of one image.
  explicit Products(bool tf32, int64_t column_bytes = kColumnBytes)
      : column_bytes_(column_bytes), gemm_(tf32) {}

  template <typename T>
  absl::Status Destination(const KernelContext& ctx, const ConvShape& shape, const T* source,
                           const T* filter, Tensor* to) {
    if (shape.IsEmpty()) return Clear(ctx, to->raw(), to->bytes());
    const Sizes sizes(shape);
    T* const out = to->data<T>();
    return ForParts<T>(
        ctx, shape, to->memory(), [&](int64_t first, int64_t count, T* columns) -> absl::Status {
          WEFT_ASSIGN_OR_RETURN(const T* rows, Columns(ctx, shape, source, first, count, columns));
          T* const part = out + first * sizes.positions * sizes.outputs;
          if (shape.channels_last) {
            return gemm_.Run(ctx,
                             {false, true, count * sizes.positions, sizes.outputs, sizes.column},
                             rows, filter, part);
          }
          GpuGemmShape product = {false, true, sizes.outputs, sizes.positions, sizes.column};
          product.batch = count;
          product.repeats_a = true;
          return gemm_.Run(ctx, product, filter, rows, part);
        });
  }

  template <typename T>
  absl::Status Source(const KernelContext& ctx, const ConvShape& shape, const T* filter,
                      const T* destination, Tensor* to) {
    if (shape.IsEmpty()) return Clear(ctx, to->raw(), to->bytes());
    const Sizes sizes(shape);
    T* const out = to->data<T>();
    return ForParts<T>(
        ctx, shape, to->memory(), [&](int64_t first, int64_t count, T* columns) -> absl::Status {
          if (AreSource(shape)) columns = out + first * sizes.image;
          const T* const part = destination + first * sizes.positions * sizes.outputs;
          if (shape.channels_last) {
            WEFT_RETURN_IF_ERROR(
                gemm_.Run(ctx, {false, false, count * sizes.positions, sizes.column, sizes.outputs},
                          part, filter, columns));
          } else {
            GpuGemmShape product = {true, false, sizes.positions, sizes.column, sizes.outputs};
            product.batch = count;
            product.repeats_b = true;
            WEFT_RETURN_IF_ERROR(gemm_.Run(ctx, product, part, filter, columns));
          }
          if (AreSource(shape)) return absl::OkStatus();
          return ForEach(ctx, count * sizes.image,
                         AddColumns<T>{ConvImages(shape), first, columns, out});
        });
  }

  // Parts of images give products, which are added in order.
  template <typename T>
  absl::Status Filter(const KernelContext& ctx, const ConvShape& shape, const T* source,
                      const T* destination, Tensor* to) {
    if (shape.IsEmpty()) return Clear(ctx, to->raw(), to->bytes());
    const Sizes sizes(shape);
    const int64_t images = ImagesOfPart<T>(shape);
    const int64_t parts = (shape.source[0] + images - 1) / images;
    T* const out = to->data<T>();
    T* products = out;
    if (parts > 1) {
      ScratchLike(*to, &products_)->Resize(to->dtype(), {parts, to->size()});
      products = products_.data<T>();
    }
    const T* rows_of_destination = destination;
    if (!shape.channels_last) {
      ScratchLike(*to, &channels_last_)->Resize(to->dtype(), shape.destination);
      WEFT_RETURN_IF_ERROR(ForEach(ctx, channels_last_.size(),
                                   PutChannelsLast<T>{sizes.outputs, sizes.positions, destination,
                                                      channels_last_.data<T>()}));
      rows_of_destination = channels_last_.data<T>();
    }
    WEFT_RETURN_IF_ERROR(ForParts<T>(
        ctx, shape, to->memory(), [&](int64_t first, int64_t count, T* columns) -> absl::Status {
          WEFT_ASSIGN_OR_RETURN(const T* rows, Columns(ctx, shape, source, first, count, columns));
          return gemm_.Run(ctx, {true, false, sizes.outputs, sizes.column, count * sizes.positions},
                           rows_of_destination + first * sizes.positions * sizes.outputs, rows,
                           products + first / images * to->size());
        }));
    if (parts == 1) return absl::OkStatus();
    return ReduceTo(ctx, {parts, to->size()}, {1, to->size()}, 0.0, LoadElement<T>{products},
                    gpu::Plus(), nullptr, StoreElement<T>{out});
  }

 private:
  struct Sizes {
    int64_t positions;  // of the window, in an image
    int64_t outputs;    // channels of the destination
    int64_t column;     // elements under the window
    int64_t image;      // elements of the source

    explicit Sizes(const ConvShape& shape)
        : positions(NumElements(absl::MakeConstSpan(shape.destination).subspan(2))),
          outputs(shape.destination[1]),
          column(NumElements(absl::MakeConstSpan(shape.filter).subspan(1))),
          image(NumElements(absl::MakeConstSpan(shape.source).subspan(1))) {}
  };

  // Whether the columns are the source itself.
  static bool AreSource(const ConvShape& shape) {
    bool are_source = shape.channels_last;
    for (size_t i = 0; i < shape.space(); ++i) {
      const Window& window = shape.windows[i];
      are_source = are_source && window.size == 1 && window.stride == 1 && window.pad_begin == 0 &&
                   shape.source[2 + i] == shape.destination[2 + i];
    }
    return are_source;
  }

  template <typename T>
  int64_t ImagesOfPart(const ConvShape& shape) const {
    if (AreSource(shape)) return shape.source[0];
    const Sizes sizes(shape);
    const int64_t bytes = sizes.positions * sizes.column * static_cast<int64_t>(sizeof(T));
    const int64_t most = std::max<int64_t>(1, column_bytes_ / bytes);
    // Of about equal size: products are planned for one.
    const int64_t parts = (shape.source[0] + most - 1) / most;
    return (shape.source[0] + parts - 1) / parts;
  }

  // run(first image, images, memory for their columns).
  template <typename T, typename Run>
  absl::Status ForParts(const KernelContext& ctx, const ConvShape& shape, Memory* memory, Run run) {
    const Sizes sizes(shape);
    const int64_t images = ImagesOfPart<T>(shape);
    if (AreSource(shape)) return run(0, images, static_cast<T*>(nullptr));
    if (scratch_ == nullptr || scratch_->memory() != memory || stream_ != ctx.stream) {
      scratch_ = ScratchOf(ctx, memory);
      stream_ = ctx.stream;
    }
    scratch_->Resize(DTypeOf<T>::value, {images, sizes.positions, sizes.column});
    for (int64_t first = 0; first < shape.source[0]; first += images) {
      const int64_t count = std::min(images, shape.source[0] - first);
      WEFT_RETURN_IF_ERROR(run(first, count, scratch_->data<T>()));
    }
    return absl::OkStatus();
  }

  // Those of `count` images, in `columns` or elsewhere.
  template <typename T>
  absl::StatusOr<const T*> Columns(const KernelContext& ctx, const ConvShape& shape,
                                   const T* source, int64_t first, int64_t count, T* columns) {
    const Sizes sizes(shape);
    if (AreSource(shape)) return source + first * sizes.image;
    WEFT_RETURN_IF_ERROR(ForEach(ctx, count * sizes.positions * sizes.column,
                                 MakeColumn<T>{ConvImages(shape), first, source, columns}));
    return columns;
  }

  const int64_t column_bytes_;
  GpuGemm gemm_;
  std::shared_ptr<Tensor> scratch_;  // of stream_
  void* stream_ = nullptr;
  Tensor products_, channels_last_;
};

}  // namespace weft::conv

#endif  // WEFT_OPS_GPU_CONV_PRODUCTS_H_
