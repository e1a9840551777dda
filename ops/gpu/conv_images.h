// The images and the filter of a convolution (ops/cpu/conv_shape.h), on the device: for .cu files
// only.
#ifndef WEFT_OPS_GPU_CONV_IMAGES_H_
#define WEFT_OPS_GPU_CONV_IMAGES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/conv_shape.h"
#include "ops/cpu/image.h"
#include "ops/formulas/window.h"
#include "ops/gpu/block.h"
#include "ops/tensor.h"

namespace weft::conv {

inline constexpr int kSpace =
    3;  // a missing spatial dimension is the first of these, with one element

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

}  // namespace weft::conv

#endif  // WEFT_OPS_GPU_CONV_IMAGES_H_
