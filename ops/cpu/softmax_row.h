// Softmax of one row of logits.
#ifndef WEFT_OPS_CPU_SOFTMAX_ROW_H_
#define WEFT_OPS_CPU_SOFTMAX_ROW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/vectorize.h"

namespace weft {

// A row of fewer takes longer as vectors.
constexpr int64_t kFewClasses = 32;

// The largest of n > 0 numbers.
template <typename T>
T LargestOf(const T* x, int64_t n) {
  constexpr int kParts = 16;
  T largest = x[0];
  Vectorized([&largest, x, n] {
    T parts[kParts];
    std::fill_n(parts, kParts, x[0]);
    int64_t i = 0;
    for (; i + kParts <= n; i += kParts) {
      for (int k = 0; k < kParts; ++k) parts[k] = parts[k] < x[i + k] ? x[i + k] : parts[k];
    }
    for (; i < n; ++i) parts[0] = parts[0] < x[i] ? x[i] : parts[0];
    for (T part : parts) largest = largest < part ? part : largest;
  });
  return largest;
}

// y = softmax of a row x of one or more classes, possibly in place. Like Paddle's CPU kernel,
// differences to the largest logit are limited to -64, so that no probability is 0.
template <typename T>
void SoftmaxRow(const T* x, int64_t classes, T* y) {
  if (classes == 0) return;
  const T largest = LargestOf(x, classes);
  ForEach<T>(classes, [=](int64_t i) {
    const T difference = x[i] - largest;
    y[i] = std::exp(difference < T(-64) ? T(-64) : difference);
  });
  const T total = static_cast<T>(SumOf<T>(classes, [=](int64_t i) { return double{y[i]}; }));
  ForEach<T>(classes, [=](int64_t i) { y[i] /= total; });
}

// The same for elements that are `stride` apart.
template <typename T>
void SoftmaxRow(const T* x, int64_t classes, int64_t stride, T* y) {
  if (classes == 0) return;
  if (stride == 1 && classes >= kFewClasses) return SoftmaxRow(x, classes, y);
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
