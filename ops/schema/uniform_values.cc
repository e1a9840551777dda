#include "ops/schema/uniform_values.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"

namespace weft {
namespace {

using Number = absl::optional<double>;
using Inputs = absl::Span<const UniformTensor>;
using Function = Number (*)(const Op& op, Inputs x, int64_t size);

template <double (*kCompute)(double)>
Number Unary(const Op&, Inputs x, int64_t) {
  return kCompute(*x[0].number);
}
// Kernels differ in the last bits, which may be all that a difference of two numbers leaves.
Number IfExact(double number) {
  return static_cast<float>(number) == number ? Number(number) : absl::nullopt;
}
template <double (*kCompute)(double)>
Number Exact(const Op&, Inputs x, int64_t) {
  return IfExact(kCompute(*x[0].number));
}
double Ceil(double x) { return std::ceil(x); }
double Exp(double x) { return std::exp(x); }
double Floor(double x) { return std::floor(x); }
double Log(double x) { return std::log(x); }
double Magnitude(double x) { return std::abs(x); }
double Reciprocal(double x) { return 1 / x; }
double Relu(double x) { return std::max(x, 0.0); }
double Rsqrt(double x) { return 1 / std::sqrt(x); }
double Same(double x) { return x; }
double Square(double x) { return x * x; }

Number Clip(const Op& op, Inputs x, int64_t) {
  const Number low = op.FloatAttr("min"), high = op.FloatAttr("max");
  if (!low.has_value() || !high.has_value() || *low > *high) return absl::nullopt;
  return std::min(std::max(*x[0].number, *low), *high);
}

absl::optional<DType> DTypeOfX(const Op& op) {
  const VarId x = op.program().block(op.block()).Resolve(op.Input("X")[0]);
  const absl::optional<TensorType> type =
      x.valid() ? DeclaredType(op.program().var(x)) : absl::nullopt;
  return type.has_value() ? absl::make_optional(type->dtype) : absl::nullopt;
}

bool IsHalf(DType dtype) { return IsFloating(dtype) && SizeOf(dtype) == 2; }

// The kernel takes the step as a number of the type: without its fraction, or rounded.
Number Increment(const Op& op, Inputs x, int64_t) {
  constexpr double kMostOfInt32 = 2147483647;
  const double step = op.FloatAttr("step").value_or(1);
  const absl::optional<DType> dtype = DTypeOfX(op);
  if (!dtype.has_value() || IsHalf(*dtype)) return absl::nullopt;
  if (*dtype == DType::kFloat32) return *x[0].number + static_cast<float>(step);
  const bool is_whole = step == std::trunc(step) && std::abs(step) <= kMostOfInt32;
  return is_whole || IsFloating(*dtype) ? Number(*x[0].number + step) : absl::nullopt;
}

// 1 / x, which is no exact number, is as sure as a division.
Number Power(double x, double exponent) {
  return exponent == -1 ? 1 / x : IfExact(std::pow(x, exponent));
}
Number Pow(const Op& op, Inputs x, int64_t) {
  return Power(*x[0].number, op.FloatAttr("factor").value_or(1));
}

// The kernel rounds after each term: several terms only where that loses nothing.
Number Sum(const Op& op, Inputs x, int64_t) {
  const absl::optional<DType> dtype = DTypeOfX(op);
  const bool has_several = x.size() > 2;
  if (has_several && (!dtype.has_value() || IsHalf(*dtype))) return absl::nullopt;
  double sum = 0;
  for (const UniformTensor& one : x) {
    sum += *one.number;
    if (has_several && !IfExact(sum).has_value()) return absl::nullopt;
  }
  return sum;
}

Number AllEqual(const Op&, Inputs x, int64_t) {
  const auto is_other = [&](const UniformTensor& one) { return one.number != x[0].number; };
  return absl::c_any_of(x, is_other) ? absl::nullopt : x[0].number;
}

Number ReduceSum(const Op&, Inputs x, int64_t size) {
  if (x[0].size <= 0 || size <= 0 || x[0].size % size != 0) return absl::nullopt;
  const int64_t count = x[0].size / size;
  if (!AddsUpExactly(*x[0].number, count, DType::kFloat32)) return absl::nullopt;
  return *x[0].number * static_cast<double>(count);
}

// Of input X alone, but for those that tell a shape.
struct Row {
  Function compute;
  bool takes_several = false;  // tensors X
  bool has_shape = false;      // other inputs are shapes
};

const Row* FindRow(absl::string_view type) {
  static const auto* const kRows = new absl::flat_hash_map<std::string, Row>{
      {"abs", {Unary<Magnitude>}},
      {"ceil", {Unary<Ceil>}},
      {"clip", {Clip}},
      {"concat", {AllEqual, true}},
      {"exp", {Exact<Exp>}},
      {"expand", {Unary<Same>, false, true}},
      {"expand_as_v2", {Unary<Same>, false, true}},
      {"expand_v2", {Unary<Same>, false, true}},
      {"floor", {Unary<Floor>}},
      {"increment", {Increment}},
      {"log", {Exact<Log>}},
      {"mean", {Unary<Same>}},
      {"pow", {Pow}},
      {"reciprocal", {Unary<Reciprocal>}},
      {"reduce_max", {Unary<Same>}},
      {"reduce_mean", {Unary<Same>}},
      {"reduce_min", {Unary<Same>}},
      {"reduce_sum", {ReduceSum}},
      {"relu", {Unary<Relu>}},
      {"rsqrt", {Exact<Rsqrt>}},
      {"square", {Unary<Square>}},
      {"stack", {AllEqual, true}},
      {"sum", {Sum, true}},
      {"tile", {Unary<Same>, false, true}},
  };
  const auto found = kRows->find(type);
  return found == kRows->end() ? nullptr : &found->second;
}

}  // namespace

absl::optional<double> UniformResult(const Op& op, absl::Span<const UniformTensor> inputs,
                                     int64_t size) {
  if (op.type() == "size") {
    const int64_t count = inputs.size() == 1 ? inputs[0].size : -1;
    return count < 0 ? absl::nullopt : Number(static_cast<double>(count));
  }
  const absl::Span<const Symbol> x = op.Input("X");
  if (x.empty()) return absl::nullopt;
  const Inputs of_x = inputs.subspan(x.data() - op.args().data(), x.size());
  const auto is_unknown = [](const UniformTensor& one) { return !one.number.has_value(); };
  if (absl::c_any_of(of_x, is_unknown)) return absl::nullopt;
  if (op.type() == "elementwise_pow") {
    const absl::Span<const Symbol> y = op.Input("Y");
    if (x.size() != 1 || y.size() != 1) return absl::nullopt;
    const Number exponent = inputs[y.data() - op.args().data()].number;
    return exponent.has_value() ? Power(*of_x[0].number, *exponent) : absl::nullopt;
  }
  const Row* const row = FindRow(op.type());
  if (row == nullptr || (x.size() > 1 && !row->takes_several)) return absl::nullopt;
  if (inputs.size() > x.size() && !row->has_shape) return absl::nullopt;
  const Number result = row->compute(op, of_x, size);
  return result.has_value() && std::isfinite(*result) ? result : absl::nullopt;
}

bool AddsUpExactly(double number, int64_t count, DType dtype) {
  if (!IsFloating(dtype) || number == 0) return true;
  int exponent = 0;
  double odd = std::ldexp(std::frexp(std::abs(number), &exponent), 53);
  while (std::fmod(odd, 2) == 0) odd /= 2;
  const int bits = IsHalf(dtype) ? 8 : dtype == DType::kFloat32 ? 24 : 53;  // bf16 has the fewest
  return odd * static_cast<double>(count) <= std::ldexp(1, bits);
}

absl::optional<double> FilledNumber(const Op& op) {
  const absl::optional<std::string> text = op.StringAttr("str_value");
  if (!text.has_value() || text->empty()) {
    if (!op.HasAttr("value")) return 0.0;
    const absl::optional<float> value = op.FloatAttr("value");
    return value.has_value() ? absl::make_optional<double>(*value) : absl::nullopt;
  }
  double value = 0;
  return absl::SimpleAtod(*text, &value) ? absl::make_optional(value) : absl::nullopt;
}

}  // namespace weft
