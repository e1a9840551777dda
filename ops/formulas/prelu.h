// ReLU with a trained slope for negative elements, for all devices.
#ifndef WEFT_OPS_FORMULAS_PRELU_H_
#define WEFT_OPS_FORMULAS_PRELU_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "ops/host_device.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"

namespace weft::formulas {

// The slope that applies to an element of X.
struct PreluSlopes {
  int64_t count = 1, stride = 1;

  PreluSlopes(const OpAttrs& attrs, const Dims& dims) {
    const std::string& mode = attrs.String("mode");
    const absl::Span<const int64_t> all = dims;
    if (mode == "element") {
      count = NumElements(all.subspan(1));
    } else if (mode == "channel") {
      const size_t axis = attrs.String("data_format").back() == 'C' ? dims.size() - 1 : 1;
      count = dims[axis];
      stride = NumElements(all.subspan(axis + 1));
    }
  }
  WEFT_HOST_DEVICE int64_t operator()(int64_t element) const { return element / stride % count; }
};

struct Prelu {
  // The factor of X, and of the gradient.
  template <typename T>
  WEFT_HOST_DEVICE static T Apply(T x, T alpha, T to) {
    return x > 0 ? to : alpha * to;
  }
  // What an element adds to the gradient of its slope.
  template <typename T>
  WEFT_HOST_DEVICE static double AlphaGrad(T x, T dout) {
    return x > 0 ? 0.0 : static_cast<double>(x) * static_cast<double>(dout);
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_PRELU_H_
