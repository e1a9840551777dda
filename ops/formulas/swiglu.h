// The gated unit SiLU(x) y, for all devices.
#ifndef WEFT_OPS_FORMULAS_SWIGLU_H_
#define WEFT_OPS_FORMULAS_SWIGLU_H_

#include <cstdint>

#include "ops/formulas/activation.h"
#include "ops/host_device.h"
#include "ops/schema/tensor_type.h"

namespace weft::formulas {

// Where x and y of an element of the output are. Without a tensor y, these are the halves of the
// last dimension of x.
class SwigluHalves {
 public:
  SwigluHalves(const Dims& x, bool has_y) {
    if (has_y) return;
    row_ = x.back();
    width_ = row_ / 2;
  }
  WEFT_HOST_DEVICE int64_t operator()(int64_t i) const { return i / width_ * row_ + i % width_; }
  // How far y is behind x in one tensor.
  int64_t half() const { return row_ - width_; }

 private:
  int64_t row_ = 1, width_ = 1;
};

struct Swiglu {
  template <typename T>
  WEFT_HOST_DEVICE static T Out(T x, T y) {
    return x * LogisticOf(x) * y;
  }
  template <typename T>
  WEFT_HOST_DEVICE static T Dx(T x, T y, T dout) {
    const T s = LogisticOf(x);
    return dout * y * s * (1 + x * (1 - s));
  }
  template <typename T>
  WEFT_HOST_DEVICE static T Dy(T x, T dout) {
    return dout * x * LogisticOf(x);
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_SWIGLU_H_
