// Windows that slide along one dimension of an image, for all devices.
#ifndef WEFT_OPS_FORMULAS_WINDOW_H_
#define WEFT_OPS_FORMULAS_WINDOW_H_

#include <cstdint>

#include "ops/host_device.h"

namespace weft::formulas {

// The window of a convolution: at position `at`, element k of the filter meets an element of the
// source.
struct FilterWindow {
  int64_t size = 1, stride = 1, dilation = 1;
  int64_t pad = 0;  // before the source

  // Outside the source in the padding.
  WEFT_HOST_DEVICE int64_t SourceOf(int64_t at, int64_t k) const {
    return at * stride - pad + k * dilation;
  }
  // The position at which element k meets this element of the source; negative if none does.
  WEFT_HOST_DEVICE int64_t PositionOf(int64_t source, int64_t k) const {
    const int64_t from_first = source + pad - k * dilation;
    return from_first >= 0 && from_first % stride == 0 ? from_first / stride : -1;
  }
};

// The elements under a window of a pooling: [begin, end).
struct PoolRange {
  int64_t begin = 0, end = 1;
  int64_t divisor = 1;  // its share of the divisor, for means
  bool is_cut = false;  // before `begin`, by the edge of the image
};

// The windows of a pooling.
struct PoolWindows {
  enum class Kind : uint8_t {
    kSliding,
    kAdaptive,  // `positions` windows of about equal size, which may share an element
    kGlobal,    // one, over the whole image
  };

  Kind kind = Kind::kGlobal;
  int64_t image = 1;  // elements
  int64_t positions = 1;
  // The rest is for kSliding.
  int64_t size = 1, stride = 1;
  int64_t pad_begin = 0, pad_end = 0;
  // The divisor of a mean is the number of elements in the image. Otherwise padding counts, but not
  // what is beyond it.
  bool exclusive = true;

  WEFT_HOST_DEVICE PoolRange At(int64_t at) const {
    PoolRange range;
    range.end = image;
    if (kind == Kind::kAdaptive) {
      range.begin = at * image / positions;
      range.end = ((at + 1) * image + positions - 1) / positions;
    } else if (kind == Kind::kSliding) {
      const int64_t begin = at * stride - pad_begin, end = begin + size;
      range.begin = begin < 0 ? 0 : begin;
      range.end = end > image ? image : end;
      range.is_cut = begin < 0;
      const int64_t padded_end = image + pad_end;
      if (!exclusive) range.divisor = (end > padded_end ? padded_end : end) - begin;
    }
    if (exclusive || kind != Kind::kSliding) {
      range.divisor = range.end > range.begin ? range.end - range.begin : 1;
    }
    return range;
  }

  // The windows with this element of the image are among [First(element), End(element)), and all of
  // these have it.
  WEFT_HOST_DEVICE int64_t First(int64_t element) const {
    if (kind == Kind::kGlobal) return 0;
    if (kind == Kind::kAdaptive) return element * positions / image;
    const int64_t past = element + pad_begin - size;  // the end of a window, at most
    return past < 0 ? 0 : past / stride + 1;
  }
  WEFT_HOST_DEVICE int64_t End(int64_t element) const {
    int64_t end = positions;
    if (kind == Kind::kAdaptive) end = ((element + 1) * positions - 1) / image + 1;
    if (kind == Kind::kSliding) end = (element + pad_begin) / stride + 1;
    return end < positions ? end : positions;
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_WINDOW_H_
