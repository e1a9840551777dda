// Images: a batch of images, with channels and two or three spatial dimensions.
#ifndef WEFT_OPS_CPU_IMAGE_H_
#define WEFT_OPS_CPU_IMAGE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/tensor.h"

namespace weft {

// The dims in the order batch, channels, space.
inline Dims ChannelsFirst(const Dims& dims, bool channels_last) {
  if (!channels_last) return dims;
  Dims result = {dims[0], dims.back()};
  result.insert(result.end(), dims.begin() + 1, dims.end() - 1);
  return result;
}

// The strides of an image of dims [batch, channels, space...], along batch, channels and three
// spatial dimensions. A missing spatial dimension is the first of these, with one element.
inline std::array<int64_t, 5> ImageSteps(const Dims& dims, bool channels_last) {
  std::array<int64_t, 5> steps{};
  const size_t space = dims.size() - 2;
  int64_t step = channels_last ? dims[1] : 1;
  for (size_t i = space; i-- > 0;) {
    steps[5 - space + i] = step;
    step *= dims[2 + i];
  }
  steps[1] = channels_last ? 1 : step;
  steps[0] = channels_last ? step : step * dims[1];
  return steps;
}

// The place of an element that an image does not have.
inline constexpr int64_t kOutside = -1;

// The gradient of copying: image[element] += from[place] for all pairs for which for_each(visit)
// calls visit(place, element or kOutside).
template <typename T, typename ForEach>
void AddToImage(const Tensor& from, Tensor* image, ForEach for_each) {
  const T* values = from.data<T>();
  T* to = image->data<T>();
  std::fill_n(to, image->size(), T(0));
  for_each([&](int64_t place, int64_t element) {
    if (element != kOutside) to[element] += values[place];
  });
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_IMAGE_H_
