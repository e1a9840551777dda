// Checks that all elements of a tensor are finite.
#ifndef WEFT_EXECUTOR_STEP_FINITE_H_
#define WEFT_EXECUTOR_STEP_FINITE_H_

#include "absl/strings/string_view.h"
#include "ops/tensor.h"

namespace weft {

// "nan", "inf" or "-inf" for the first element that is not finite; empty if all are finite, and for
// element types other than fp32 and fp64. O(elements). Requires host memory.
absl::string_view FirstNonFinite(const Tensor& tensor);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_FINITE_H_
