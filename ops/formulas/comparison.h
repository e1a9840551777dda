// Comparisons and logic of elements, for all devices.
#ifndef WEFT_OPS_FORMULAS_COMPARISON_H_
#define WEFT_OPS_FORMULAS_COMPARISON_H_

#include <cmath>

#include "ops/host_device.h"

namespace weft::formulas {

struct Equal {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x == y;
  }
};
struct NotEqual {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x != y;
  }
};
struct LessThan {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x < y;
  }
};
struct LessEqual {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x <= y;
  }
};
struct GreaterThan {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x > y;
  }
};
struct GreaterEqual {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x >= y;
  }
};
struct LogicalAnd {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x != 0 && y != 0;
  }
};
struct LogicalOr {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return x != 0 || y != 0;
  }
};
struct LogicalXor {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x, T y) const {
    return (x != 0) != (y != 0);
  }
};
struct LogicalNot {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x) const {
    return x == 0;
  }
};
// Integers are finite.
struct IsFinite {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x) const {
    return std::isfinite(static_cast<double>(x));
  }
};
struct IsInf {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x) const {
    return std::isinf(static_cast<double>(x));
  }
};
struct IsNan {
  template <typename T>
  WEFT_HOST_DEVICE bool operator()(T x) const {
    return std::isnan(static_cast<double>(x));
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_COMPARISON_H_
