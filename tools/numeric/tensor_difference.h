// The difference of two tensors.
#ifndef WEFT_TOOLS_NUMERIC_TENSOR_DIFFERENCE_H_
#define WEFT_TOOLS_NUMERIC_TENSOR_DIFFERENCE_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

double ElementAt(const Tensor& tensor, int64_t i);

// The largest difference of two tensors of one type: its position, and its size relative to the
// largest element.
struct TensorDifference {
  int64_t place = 0;
  double expected = 0, found = 0;
  double relative = 0;
};

// None if all elements are equal (0 and -0 are). The tensors must be of one type. O(elements).
absl::optional<TensorDifference> CompareTensors(const Tensor& expected, const Tensor& found);
// The index of element `place`.
Dims IndexOfElement(int64_t place, const Dims& dims);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_TENSOR_DIFFERENCE_H_
