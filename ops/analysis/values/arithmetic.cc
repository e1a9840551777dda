#include "ops/analysis/values/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_map.h"

namespace weft {

double LargestNumber(DType dtype) {
  if (dtype == DType::kInt32) return 2147483647.0;
  if (dtype == DType::kInt64) return 9007199254740992.0;
  return std::numeric_limits<double>::max();
}

double Rounded(double number, DType dtype) {
  if (dtype == DType::kBool) return number != 0 ? 1 : 0;
  if (dtype == DType::kFloat32) return static_cast<float>(number);
  return IsInteger(dtype) ? std::trunc(number) : number;
}

const Arithmetic* FindArithmetic(Algebra algebra) {
  static const auto* const table = new absl::flat_hash_map<Algebra, Arithmetic>{
      {Algebra::kCopy, {1, [](double x, double) { return x; }}},
      {Algebra::kCast, {1, [](double x, double) { return x; }}},
      {Algebra::kScale, {1, nullptr}},
      {Algebra::kIncrement, {1, nullptr}},
      {Algebra::kSqrt, {1, [](double x, double) { return std::sqrt(x); }}},
      {Algebra::kNot, {1, [](double x, double) -> double { return x == 0; }}},
      {Algebra::kAdd, {2, [](double x, double y) { return x + y; }}},
      {Algebra::kSubtract, {2, [](double x, double y) { return x - y; }}},
      {Algebra::kMultiply, {2, [](double x, double y) { return x * y; }}},
      {Algebra::kDivide, {2, [](double x, double y) { return x / y; }}},
      {Algebra::kFloorDivide, {2, [](double x, double y) { return std::floor(x / y); }}},
      {Algebra::kModulo, {2, [](double x, double y) { return x - std::floor(x / y) * y; }}},
      {Algebra::kMaximum, {2, [](double x, double y) { return std::max(x, y); }}},
      {Algebra::kMinimum, {2, [](double x, double y) { return std::min(x, y); }}},
      {Algebra::kEqual, {2, [](double x, double y) -> double { return x == y; }}},
      {Algebra::kNotEqual, {2, [](double x, double y) -> double { return x != y; }}},
      {Algebra::kLess, {2, [](double x, double y) -> double { return x < y; }}},
      {Algebra::kLessEqual, {2, [](double x, double y) -> double { return x <= y; }}},
      {Algebra::kGreater, {2, [](double x, double y) -> double { return x > y; }}},
      {Algebra::kGreaterEqual, {2, [](double x, double y) -> double { return x >= y; }}},
      {Algebra::kAnd, {2, [](double x, double y) -> double { return x != 0 && y != 0; }}},
      {Algebra::kOr, {2, [](double x, double y) -> double { return x != 0 || y != 0; }}},
      {Algebra::kXor, {2, [](double x, double y) -> double { return (x != 0) != (y != 0); }}},
  };
  const auto found = table->find(algebra);
  return found == table->end() ? nullptr : &found->second;
}

}  // namespace weft
