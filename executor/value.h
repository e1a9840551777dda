// What variables hold.
#ifndef WEFT_EXECUTOR_VALUE_H_
#define WEFT_EXECUTOR_VALUE_H_

#include <vector>

#include "ops/tensor.h"

namespace weft {

// A tensor, not allocated where nothing has been written; or an array of tensors
// (LOD_TENSOR_ARRAY), whose elements are written one by one and in any order; or the rounds of a
// loop that its gradient goes back through (STEP_SCOPES), each with the values of that round.
// Copies share buffers, as copies of a tensor do.
struct Value {
  Tensor tensor;
  std::vector<Value> elements;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_VALUE_H_
