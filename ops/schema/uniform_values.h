// What ops make of tensors that are filled with one number.
#ifndef WEFT_OPS_SCHEMA_UNIFORM_VALUES_H_
#define WEFT_OPS_SCHEMA_UNIFORM_VALUES_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

struct UniformTensor {
  absl::optional<double> number;  // that fills it, if it is known
  int64_t size = -1;              // number of elements; -1: not known
};

// The number that fills the only output, which has `size` elements (-1: not known). `inputs`: by
// Op::input_args(). None for ops that this table lacks: it has elementwise functions, sums,
// reductions, and ops that repeat or join values, where no trait and no algebra says it. None where
// kernels may compute another number, by more than they round the result; kernels of reductions are
// taken to add up in fp32 at least. O(inputs).
absl::optional<double> UniformResult(const Op& op, absl::Span<const UniformTensor> inputs,
                                     int64_t size);

// Whether `count` times `number` adds up without rounding, in any order, in numbers of the type:
// then every partial sum is one of them. O(1).
bool AddsUpExactly(double number, int64_t count, DType dtype);

// What attributes value and str_value fill the output with; none: with nothing that is a number.
absl::optional<double> FilledNumber(const Op& op);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_UNIFORM_VALUES_H_
