// Dropout of an element, for all devices.
#ifndef WEFT_OPS_FORMULAS_DROPOUT_H_
#define WEFT_OPS_FORMULAS_DROPOUT_H_

#include <cstdint>

#include "ops/host_device.h"

namespace weft::formulas {

// Of an element, or of its gradient. Mask: 1 if the element is kept.
template <typename T>
struct KeepOrDrop {
  T factor;
  WEFT_HOST_DEVICE T operator()(T x, uint8_t stays) const { return stays ? x * factor : T(0); }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_DROPOUT_H_
