// Conversions of an element to another type, for all devices.
#ifndef WEFT_OPS_FORMULAS_CAST_H_
#define WEFT_OPS_FORMULAS_CAST_H_

#include <type_traits>

#include "ops/host_device.h"

namespace weft::formulas {

// Like static_cast; from half precision through fp32. What becomes of a number beyond the range of
// an integer type depends on the device.
template <typename To>
struct Cast {
  template <typename From>
  WEFT_HOST_DEVICE To operator()(From value) const {
    if constexpr (std::is_class_v<From>) {
      return static_cast<To>(static_cast<float>(value));
    } else {
      return static_cast<To>(value);
    }
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_CAST_H_
