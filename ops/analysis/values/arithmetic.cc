#include "ops/analysis/values/arithmetic.h"

#include <cmath>
#include <limits>

#include "absl/container/flat_hash_map.h"

namespace weft {
namespace {

// The quotient of fp32 rounds before it is cut off: 1 / 0.1 is 10.
double FloorOfQuotient(DType dtype, double x, double y) {
  return std::floor(Rounded(x / y, dtype == DType::kFloat32 ? dtype : DType::kFloat64));
}

// It has the sign of Y.
double Remainder(DType, double x, double y) {
  const double remainder = std::fmod(x, y);
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

}  // namespace

double LargestNumber(DType dtype) {
  if (dtype == DType::kInt32) return 2147483647.0;
  if (dtype == DType::kInt64) return 9007199254740991.0;
  return std::numeric_limits<double>::max();
}

double Rounded(double number, DType dtype) {
  if (dtype == DType::kBool) return number != 0 ? 1 : 0;
  if (dtype == DType::kFloat32) return static_cast<float>(number);
  return IsInteger(dtype) ? std::trunc(number) : number;
}

const Arithmetic* FindArithmetic(Algebra algebra) {
  static const auto* const table = new absl::flat_hash_map<Algebra, Arithmetic>{
      {Algebra::kCopy, {1, [](DType, double x, double) { return x; }}},
      {Algebra::kCast, {1, [](DType, double x, double) { return x; }}},
      {Algebra::kScale, {1, nullptr}},
      {Algebra::kIncrement, {1, nullptr}},
      {Algebra::kSqrt, {1, [](DType, double x, double) { return std::sqrt(x); }}},
      {Algebra::kNot, {1, [](DType, double x, double) -> double { return x == 0; }}},
      {Algebra::kAdd, {2, [](DType, double x, double y) { return x + y; }}},
      {Algebra::kSubtract, {2, [](DType, double x, double y) { return x - y; }}},
      {Algebra::kMultiply, {2, [](DType, double x, double y) { return x * y; }}},
      {Algebra::kDivide, {2, [](DType, double x, double y) { return x / y; }}},
      {Algebra::kFloorDivide, {2, FloorOfQuotient}},
      {Algebra::kModulo, {2, Remainder}},
      {Algebra::kMaximum, {2, [](DType, double x, double y) { return x > y || x != x ? x : y; }}},
      {Algebra::kMinimum, {2, [](DType, double x, double y) { return x < y || x != x ? x : y; }}},
      {Algebra::kEqual, {2, [](DType, double x, double y) -> double { return x == y; }}},
      {Algebra::kNotEqual, {2, [](DType, double x, double y) -> double { return x != y; }}},
      {Algebra::kLess, {2, [](DType, double x, double y) -> double { return x < y; }}},
      {Algebra::kLessEqual, {2, [](DType, double x, double y) -> double { return x <= y; }}},
      {Algebra::kGreater, {2, [](DType, double x, double y) -> double { return x > y; }}},
      {Algebra::kGreaterEqual, {2, [](DType, double x, double y) -> double { return x >= y; }}},
      {Algebra::kAnd, {2, [](DType, double x, double y) -> double { return x != 0 && y != 0; }}},
      {Algebra::kOr, {2, [](DType, double x, double y) -> double { return x != 0 || y != 0; }}},
      {Algebra::kXor,
       {2, [](DType, double x, double y) -> double { return (x != 0) != (y != 0); }}},
  };
  const auto found = table->find(algebra);
  return found == table->end() ? nullptr : &found->second;
}

}  // namespace weft
