// Dropout of an element, for all devices.
#ifndef WEFT_OPS_FORMULAS_DROPOUT_H_
#define WEFT_OPS_FORMULAS_DROPOUT_H_

#include <cstdint>

#include "ops/formulas/philox.h"
#include "ops/host_device.h"

namespace weft::formulas {

// Of an element, or of its gradient. Mask: 1 if the element is kept.
template <typename T>
struct KeepOrDrop {
  T factor;
  WEFT_HOST_DEVICE T operator()(T x, uint8_t stays) const { return stays ? x * factor : T(0); }
};

// Dropout of elements 4 block to 4 block + 3, up to `size`. Drops an element if its number is less
// than `dropped`, which is the probability times 2^32. `stays` may be null.
template <typename T>
struct DropOutBlock {
  static constexpr int64_t kElements = 4;

  uint64_t key, sequence, dropped;
  KeepOrDrop<T> f;
  int64_t size;
  const T* x;
  T* out;
  uint8_t* stays;

  int64_t num_blocks() const { return (size + kElements - 1) / kElements; }

  WEFT_HOST_DEVICE void operator()(int64_t block) const {
    const PhiloxBlock numbers = Philox(key, sequence, static_cast<uint64_t>(block));
    for (int64_t k = 0; k < kElements; ++k) {
      const int64_t i = kElements * block + k;
      if (i >= size) return;
      const uint8_t stay = numbers.words[k] >= dropped;
      out[i] = f(x[i], stay);
      if (stays != nullptr) stays[i] = stay;
    }
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_DROPOUT_H_
