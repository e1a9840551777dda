// Clipping of an element, for all devices. NaN in, NaN out.
#ifndef WEFT_OPS_FORMULAS_CLIP_H_
#define WEFT_OPS_FORMULAS_CLIP_H_

#include "ops/host_device.h"

namespace weft::formulas {

template <typename T>
struct Clip {
  T low, high;
  WEFT_HOST_DEVICE T operator()(T x) const { return x < low ? low : x > high ? high : x; }
};

// The gradient goes to elements strictly between the limits.
struct ClipGrad {
  double low, high;
  template <typename T>
  WEFT_HOST_DEVICE T operator()(T x, T dout) const {
    return x > static_cast<T>(low) && x < static_cast<T>(high) ? dout : T(0);
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_CLIP_H_
