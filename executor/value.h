// Values of variables.
#ifndef WEFT_EXECUTOR_VALUE_H_
#define WEFT_EXECUTOR_VALUE_H_

#include <vector>

#include "ops/tensor.h"

namespace weft {

// A tensor, unallocated until something is written; or an array of tensors (LOD_TENSOR_ARRAY),
// whose elements are written one by one in any order; or the iterations of a loop for its gradient
// (STEP_SCOPES), each with the values of that iteration. Copies share buffers, like copies of a
// tensor.
struct Value {
  Tensor tensor;
  std::vector<Value> elements;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_VALUE_H_
