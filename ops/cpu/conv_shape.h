// The shape of a convolution, for all devices.
//
// Three functions relate a source image, a filter and a destination image (`at` runs over the
// positions of the window, `k` over the filter; channels are omitted):
//   destination[at] = Σ_k source[at stride - padding + k dilation] filter[k]
//   the gradient of the source, from the gradient of the destination and the filter
//   the gradient of the filter, from the source and the gradient of the destination
// A transposed convolution computes the second one: its input is the destination.
#ifndef WEFT_OPS_CPU_CONV_SHAPE_H_
#define WEFT_OPS_CPU_CONV_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "ops/cpu/image.h"
#include "ops/formulas/window.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/windows.h"
#include "ops/tensor.h"

namespace weft {

struct ConvShape {
  // Images are [batch, channels, space...], regardless of their layout. The filter is [channels of
  // the destination, channels of the source / groups, space...].
  Dims source, filter, destination;
  absl::InlinedVector<Window, 3> windows;
  int64_t groups = 1;
  bool channels_last = false;

  size_t space() const { return windows.size(); }
  bool IsEmpty() const {
    return NumElements(source) == 0 || NumElements(filter) == 0 || NumElements(destination) == 0;
  }
  formulas::FilterWindow FilterWindowAt(size_t i) const {
    return {windows[i].size, windows[i].stride, windows[i].dilation, windows[i].pad_begin};
  }
  // How far the last position of window i extends beyond the source; negative if it ends before the
  // end.
  int64_t Overhang(size_t i) const {
    const Window& w = windows[i];
    return (destination[2 + i] - 1) * w.stride + w.extent() - source[2 + i] - w.pad_begin;
  }
};

enum class ConvKind { kForward, kTransposed };

// The part of the shape that attributes determine.
struct ConvAttrs {
  ConvKind kind;
  std::vector<Window> windows;
  int64_t groups;
  bool channels_last;

  static absl::StatusOr<ConvAttrs> Read(const OpAttrs& attrs, ConvKind kind, size_t space) {
    ConvAttrs result{kind, {}, attrs.Int("groups"), false};
    WEFT_ASSIGN_OR_RETURN(result.windows, ReadWindows(attrs, space));
    WEFT_ASSIGN_OR_RETURN(result.channels_last, ReadChannelsLast(attrs, space));
    return result;
  }

  // For an op with an input and an output of these dimensions.
  ConvShape Shape(const Tensor& input, const Tensor& filter, const Tensor& output) const {
    ConvShape shape;
    shape.source = ChannelsFirst(input.dims(), channels_last);
    shape.filter = filter.dims();
    shape.destination = ChannelsFirst(output.dims(), channels_last);
    shape.groups = groups;
    shape.channels_last = channels_last;
    for (size_t i = 0; i < windows.size(); ++i) {
      Window window = windows[i];
      window.size = shape.filter[2 + i];
      shape.windows.push_back(WithExplicitPaddings(window, shape.source[2 + i]));
    }
    if (kind == ConvKind::kTransposed) std::swap(shape.source, shape.destination);
    return shape;
  }
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_CONV_SHAPE_H_
