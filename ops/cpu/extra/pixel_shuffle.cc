// Channels and pixels rearranged.
#include <cstdint>
#include <initializer_list>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/strided_view.h"
#include "ops/cpu/view_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// x under other dims, of as many elements, then with its dimensions in this order.
View Transposed(const Dims& dims, std::initializer_list<size_t> order) {
  const Dims strides = RowMajorStrides(dims);
  View view;
  for (size_t d : order) {
    view.extents.push_back(dims[d]);
    view.strides.push_back(strides[d]);
  }
  return view;
}

// Channels become r x r neighbours.
ViewOf PixelShuffle(const OpAttrs& attrs) {
  const int64_t r = attrs.Int("upscale_factor");
  if (attrs.String("data_format") == "NHWC") {
    return [r](const Dims& x, const Dims&) {
      return Transposed({x[0], x[1], x[2], x[3] / r / r, r, r}, {0, 1, 4, 2, 5, 3});
    };
  }
  return [r](const Dims& x, const Dims&) {
    return Transposed({x[0], x[1] / r / r, r, r, x[2], x[3]}, {0, 1, 4, 2, 5, 3});
  };
}

// r x r neighbours become channels.
ViewOf PixelUnshuffle(const OpAttrs& attrs) {
  const int64_t r = attrs.Int("downscale_factor");
  if (attrs.String("data_format") == "NHWC") {
    return [r](const Dims& x, const Dims&) {
      return Transposed({x[0], x[1] / r, r, x[2] / r, r, x[3]}, {0, 1, 3, 5, 2, 4});
    };
  }
  return [r](const Dims& x, const Dims&) {
    return Transposed({x[0], x[1], x[2] / r, r, x[3] / r, r}, {0, 1, 3, 5, 2, 4});
  };
}

// The channels of the groups in turn.
ViewOf ChannelShuffle(const OpAttrs& attrs) {
  const int64_t groups = attrs.Int("groups");
  if (attrs.String("data_format") == "NHWC") {
    return [groups](const Dims& x, const Dims&) {
      return Transposed({x[0] * x[1] * x[2], groups, x[3] / groups}, {0, 2, 1});
    };
  }
  return [groups](const Dims& x, const Dims&) {
    return Transposed({x[0], groups, x[1] / groups, x[2] * x[3]}, {0, 2, 1, 3});
  };
}

ViewOf ShuffleChannel(const OpAttrs& attrs) {
  const int64_t group = attrs.Int("group");
  return [group](const Dims& x, const Dims&) {
    const int64_t rest = NumElements(absl::MakeConstSpan(x).subspan(2));
    return Transposed({x[0], group, x[1] / group, rest}, {0, 2, 1, 3});
  };
}

}  // namespace

void AddPixelShuffleKernels(KernelTable* table) {
  AddView("channel_shuffle", ChannelShuffle, table);
  AddView("pixel_shuffle", PixelShuffle, table);
  AddView("pixel_unshuffle", PixelUnshuffle, table);
  AddView("shuffle_channel", ShuffleChannel, table);
}

}  // namespace weft
