// Arithmetic on single numbers, as kernels do it.
#ifndef WEFT_OPS_ANALYSIS_VALUES_ARITHMETIC_H_
#define WEFT_OPS_ANALYSIS_VALUES_ARITHMETIC_H_

#include "ops/schema/op_columns.h"
#include "ops/schema/tensor_type.h"

namespace weft {

inline bool IsInteger(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

// Types whose numbers up to LargestNumber a double represents.
inline bool IsFollowed(DType dtype) {
  return IsInteger(dtype) || dtype == DType::kBool || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}
double LargestNumber(DType dtype);

// Rounded to a value of that type, which IsFollowed. Kernels truncate fractions.
double Rounded(double number, DType dtype);

// A function of X and, if it has two operands, Y, of this type; its result is not yet Rounded.
// Null: of attributes, too.
struct Arithmetic {
  int num_operands;
  double (*compute)(DType dtype, double x, double y);
};
// nullptr for ops that are not arithmetic on numbers.
const Arithmetic* FindArithmetic(Algebra algebra);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_ARITHMETIC_H_
