// Softmax of one row of logits.
#ifndef WEFT_OPS_CPU_SOFTMAX_ROW_H_
#define WEFT_OPS_CPU_SOFTMAX_ROW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weft {

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

#endif  // WEFT_OPS_CPU_SOFTMAX_ROW_H_
