// Softmax over one dimension of a tensor, the classes.
#ifndef WEFT_OPS_CPU_SOFTMAX_H_
#define WEFT_OPS_CPU_SOFTMAX_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// A tensor as rows of classes: row r starts at Start(r), its classes are `stride` apart.
struct ClassRows {
  // InvalidArgument where the tensor has no such axis; negative ones count from the right.
  static absl::StatusOr<ClassRows> Along(int64_t axis, const Dims& dims);

  int axis;
  int64_t outer, classes, stride;

  bool operator!=(const ClassRows& other) const {
    return outer != other.outer || classes != other.classes || stride != other.stride;
  }
  int64_t count() const { return outer * stride; }
  int64_t Start(int64_t r) const { return r / stride * classes * stride + r % stride; }
};

// y = softmax of a row x, in place or not. As Paddle's CPU kernel does, differences to the largest
// logit count as -64 below that, so that no probability is 0.
template <typename T>
void SoftmaxRow(const T* x, int64_t classes, int64_t stride, T* y) {
  if (classes == 0) return;
  T largest = x[0];
  for (int64_t i = 1; i < classes; ++i) largest = std::max(largest, x[i * stride]);
  double sum = 0;
  for (int64_t i = 0; i < classes; ++i) {
    const T e = std::exp(std::max(x[i * stride] - largest, T(-64)));
    y[i * stride] = e;
    sum += e;
  }
  const T total = static_cast<T>(sum);
  for (int64_t i = 0; i < classes; ++i) y[i * stride] /= total;
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_SOFTMAX_H_
