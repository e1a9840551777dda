// Windows that slide over an image, read from the attributes of convolutions and poolings.
#ifndef WEFT_OPS_SCHEMA_WINDOWS_H_
#define WEFT_OPS_SCHEMA_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/schema/op_attrs.h"

namespace weft {

// A window that slides along one dimension of the image.
struct Window {
  enum class Padding {
    kExplicit,  // pad_begin and pad_end
    kSame,      // one position for every `stride` elements; without dilation
    kValid,     // none
  };

  int64_t size = 1;  // -1: unknown
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_begin = 0;
  int64_t pad_end = 0;
  Padding padding = Padding::kExplicit;

  // The distance from the first element under the window to the last one, plus 1.
  int64_t extent() const;
};

// One window for each of `num_dims` dimensions, from the attributes strides, paddings,
// padding_algorithm and dilations; attributes that the op lacks are as in Window. Paddings are one
// number a dimension, or one before and one after. Leaves sizes unset. InvalidArgument, naming the
// attribute.
absl::StatusOr<std::vector<Window>> ReadWindows(const OpAttrs& attrs, size_t num_dims);

// An attribute of `num_dims` positive numbers.
absl::StatusOr<std::vector<int64_t>> ReadPositive(const OpAttrs& attrs, absl::string_view name,
                                                  size_t num_dims);

// Whether attribute data_format says that channels come last; false for an op without it.
absl::StatusOr<bool> ReadChannelsLast(const OpAttrs& attrs, size_t num_dims);

// The window with explicit paddings for a dimension of `size`, which is known.
Window WithExplicitPaddings(const Window& window, int64_t size);

enum class Rounding { kDown, kUp };

// The number of positions of a window along a dimension of `size`. None if it does not fit, -1 if a
// size is unknown.
absl::optional<int64_t> NumPositions(int64_t size, const Window& window, Rounding rounding);

// "two" for 2, up to six.
absl::string_view NumberWord(size_t number);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_WINDOWS_H_
