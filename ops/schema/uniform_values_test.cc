#include "ops/schema/uniform_values.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::Eq;

// What the op makes of tensors with these numbers and sizes.
absl::optional<double> Result(const std::string& op, const std::vector<UniformTensor>& inputs,
                              int64_t size = 1) {
  const Program program = *ParseProgramText(
      "program {\n  block 0 parent=-1 {\n    var a : fp32[4]\n    var b : fp32[4]\n"
      "    var out : fp32[4]\n    var i : int64[1]\n    var h : fp16[4]\n    " +
      op + "\n  }\n}\n");
  return UniformResult(program.op(program.block(0).ops()[0]), inputs, size);
}

TEST(UniformValues, OfFunctions) {
  EXPECT_THAT(Result("Out=[out] = rsqrt(X=[a])", {{4.0, 4}}), Eq(0.5));
  EXPECT_THAT(Result("Out=[out] = reciprocal(X=[a])", {{4.0, 4}}), Eq(0.25));
  EXPECT_THAT(Result("Out=[out] = pow(X=[a]) {factor=0.5}", {{4.0, 4}}), Eq(2));
  EXPECT_THAT(Result("Out=[out] = clip(X=[a]) {min=1.0, max=2.0}", {{4.0, 4}}), Eq(2));
  EXPECT_THAT(Result("Out=[out] = increment(X=[a]) {step=1.0}", {{1.0, 1}}), Eq(2));
  EXPECT_THAT(Result("Out=[a] = increment(X=[a]) {step=0.5}", {{3.5, 1}}), Eq(4));
  EXPECT_THAT(Result("Out=[i] = increment(X=[i]) {step=0.5}", {{3.0, 1}}), Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[c] = increment(X=[c]) {step=0.5}", {{3.5, 1}}), Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[h] = increment(X=[h]) {step=2049.0}", {{-2048.0, 1}}), Eq(absl::nullopt))
      << "2048 + -2048 there";
  EXPECT_THAT(Result("Out=[i] = increment(X=[i]) {step=3000000000.0}", {{-5.0, 1}}),
              Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = elementwise_pow(X=[a], Y=[b])", {{2.0, 4}, {3.0, 4}}), Eq(8));
  EXPECT_THAT(Result("Out=[out] = elementwise_pow(X=[a], Y=[b])", {{3.0, 4}, {-1.0, 4}}),
              Eq(1.0 / 3));
  EXPECT_THAT(Result("Out=[out] = pow(X=[a]) {factor=-1.0}", {{3.0, 4}}), Eq(1.0 / 3));
  EXPECT_THAT(Result("Out=[out] = log(X=[a])", {{0.0, 4}}), Eq(absl::nullopt)) << "not finite";
  EXPECT_THAT(Result("Out=[out] = rsqrt(X=[a])", {{3.0, 4}}), Eq(absl::nullopt)) << "not exact";
  EXPECT_THAT(Result("Out=[out] = exp(X=[a])", {{1.0, 4}}), Eq(absl::nullopt)) << "not exact";
  EXPECT_THAT(Result("Out=[out] = log(X=[a])", {{2.0, 4}}), Eq(absl::nullopt)) << "not exact";
  EXPECT_THAT(Result("Out=[out] = pow(X=[a]) {factor=0.5}", {{2.0, 4}}), Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = elementwise_pow(X=[a], Y=[b])", {{2.0, 4}, {0.5, 4}}),
              Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = tanh(X=[a])", {{0.0, 4}}), Eq(absl::nullopt)) << "not here";
}

TEST(UniformValues, OfFills) {
  const auto number = [](const std::string& attrs) {
    const Program program = *ParseProgramText(
        "program {\n  block 0 parent=-1 {\n    var out : fp32[4]\n    Out=[out] = fill_constant() "
        "{" +
        attrs + "}\n  }\n}\n");
    return FilledNumber(program.op(program.block(0).ops()[0]));
  };
  EXPECT_THAT(number("value=0.5"), Eq(0.5));
  EXPECT_THAT(number("value=0.5, str_value=\"\""), Eq(0.5));
  EXPECT_THAT(number("value=0.5, str_value=\"0.25\""), Eq(0.25));
  EXPECT_THAT(number("value=0.5, str_value=\"x\""), Eq(absl::nullopt));
  EXPECT_THAT(number("dtype=5"), Eq(0)) << "the default";
  EXPECT_THAT(number("value=1"), Eq(absl::nullopt));
}

TEST(UniformValues, OfSeveralTensors) {
  EXPECT_THAT(Result("Out=[out] = sum(X=[a, b])", {{1.0, 4}, {2.0, 4}}), Eq(3));
  EXPECT_THAT(Result("Out=[out] = sum(X=[a, b])", {{1.0, 4}, {absl::nullopt, 4}}),
              Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = sum(X=[a, a, b])", {{1.0, 4}, {1.0, 4}, {0.5, 4}}), Eq(2.5));
  EXPECT_THAT(Result("Out=[out] = sum(X=[a, b, a])", {{1e8, 4}, {0.25, 4}, {-1e8, 4}}),
              Eq(absl::nullopt))
      << "0 in fp32";
  EXPECT_THAT(Result("Out=[out] = sum(X=[a, b])", {{0.1, 4}, {0.2, 4}}), Eq(0.1 + 0.2));
  EXPECT_THAT(Result("Out=[h] = sum(X=[h, h, h])", {{2048.0, 4}, {1.0, 4}, {-2048.0, 4}}),
              Eq(absl::nullopt))
      << "0 in fp16";
  EXPECT_THAT(Result("Out=[h] = sum(X=[h, h])", {{1.0, 4}, {1.0, 4}}), Eq(2));
  EXPECT_THAT(Result("Out=[out] = concat(X=[a, b])", {{2.0, 4}, {2.0, 4}}), Eq(2));
  EXPECT_THAT(Result("Out=[out] = concat(X=[a, b])", {{2.0, 4}, {3.0, 4}}), Eq(absl::nullopt));
}

TEST(UniformValues, OfReductions) {
  EXPECT_THAT(Result("Out=[out] = reduce_sum(X=[a])", {{1.0, 4}}, 2), Eq(2));
  EXPECT_THAT(Result("Out=[out] = reduce_sum(X=[a])", {{0.1F, 10}}, 1), Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = reduce_sum(X=[a])", {{1.0, -1}}, 1), Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = reduce_sum(X=[a])", {{1.0, 4}}, -1), Eq(absl::nullopt));
  EXPECT_THAT(Result("Out=[out] = reduce_max(X=[a])", {{3.0, -1}}, 1), Eq(3));
  EXPECT_THAT(Result("Out=[out] = size(Input=[a])", {{absl::nullopt, 4}}), Eq(4));
  EXPECT_THAT(Result("Out=[out] = size(Input=[a])", {{absl::nullopt, -1}}), Eq(absl::nullopt));
}

TEST(UniformValues, AddUpExactlyIfEveryPartialSumIsANumberOfTheType) {
  const double tenth = 0.1F;
  EXPECT_TRUE(AddsUpExactly(1, 256, DType::kBFloat16));
  EXPECT_FALSE(AddsUpExactly(1, 257, DType::kBFloat16));
  EXPECT_TRUE(AddsUpExactly(-0.75, 85, DType::kFloat16));
  EXPECT_FALSE(AddsUpExactly(-0.75, 86, DType::kFloat16));
  EXPECT_TRUE(AddsUpExactly(1, int64_t{1} << 24, DType::kFloat32));
  EXPECT_FALSE(AddsUpExactly(1, (int64_t{1} << 24) + 1, DType::kFloat32));
  EXPECT_FALSE(AddsUpExactly(tenth, 10, DType::kFloat32));
  EXPECT_TRUE(AddsUpExactly(tenth, 1, DType::kFloat32));
  EXPECT_TRUE(AddsUpExactly(tenth, 10, DType::kFloat64));
  EXPECT_TRUE(AddsUpExactly(0, int64_t{1} << 60, DType::kBFloat16));
  EXPECT_TRUE(AddsUpExactly(3, int64_t{1} << 60, DType::kInt64));
}

TEST(UniformValues, OtherInputsTellShapesOnly) {
  EXPECT_THAT(Result("Out=[out] = expand_v2(X=[a], Shape=[b])", {{2.0, 1}, {absl::nullopt, 2}}),
              Eq(2));
  EXPECT_THAT(
      Result("Out=[out] = clip(X=[a], Min=[b]) {min=1.0, max=2.0}", {{2.0, 1}, {absl::nullopt, 1}}),
      Eq(absl::nullopt));
}

}  // namespace
}  // namespace weft
