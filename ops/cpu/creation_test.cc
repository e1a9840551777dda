#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Longs = std::vector<int64_t>;

absl::StatusOr<Tensor> Fill(DType dtype, const Longs& shape, float value,
                            const std::string& str_value = "") {
  auto out = RunOp("fill_constant", {},
                   {{"dtype", static_cast<int32_t>(dtype)},
                    {"shape", shape},
                    {"value", value},
                    {"str_value", str_value}},
                   {{"Out", 1}});
  if (!out.ok()) return out.status();
  return (*out)["Out"][0];
}

// The first element's bits.
template <typename T>
T FirstBits(const Tensor& tensor) {
  return *static_cast<const T*>(tensor.raw());
}

TEST(EmptyTest, IsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("empty", {}, {{"dtype", static_cast<int32_t>(DType::kInt64)}, {"shape", Longs{2, 3}}},
            {{"Out", 1}}));
  EXPECT_EQ(out["Out"][0].dims(), (Dims{2, 3}));
  EXPECT_EQ(Values<int64_t>(out["Out"][0]), Longs(6, 0));
}

TEST(FillConstantTest, FillsTheShape) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kFloat32, {2, 3}, 1.5));
  EXPECT_THAT(out.dims(), ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(out), Each(1.5));
}

TEST(FillConstantTest, FillsElementsOfEverySize) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kBool, {3}, 1));
  EXPECT_THAT(Values<bool>(out), ElementsAre(true, true, true));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kInt16, {3}, -2));
  EXPECT_THAT(Values<int16_t>(out), ElementsAre(-2, -2, -2));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kInt64, {3}, -3));
  EXPECT_THAT(Values<int64_t>(out), ElementsAre(-3, -3, -3));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kFloat32, {3}, -0.0f));
  for (float value : Values<float>(out)) EXPECT_TRUE(std::signbit(value));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kFloat64, {0}, 1));
  EXPECT_THAT(out.dims(), ElementsAre(0));
}

TEST(FillConstantTest, NoDimensionsMakeAScalar) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kFloat64, {}, 2));
  EXPECT_THAT(out.dims(), IsEmpty());
  EXPECT_THAT(Values<double>(out), ElementsAre(2));
}

TEST(FillConstantTest, TextIsMorePreciseThanTheValue) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kFloat64, {1}, 0.1f, "0.1"));
  EXPECT_THAT(Values<double>(out), ElementsAre(0.1));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kInt64, {1}, 0, "9007199254740993"));
  EXPECT_THAT(Values<int64_t>(out), ElementsAre(9007199254740993));
}

TEST(FillConstantTest, TextMayBeInfiniteOrNotANumber) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kFloat32, {1}, 0, "-inf"));
  EXPECT_EQ(Values<float>(out)[0], -std::numeric_limits<float>::infinity());
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kFloat32, {1}, 0, "nan"));
  EXPECT_TRUE(std::isnan(Values<float>(out)[0]));
}

TEST(FillConstantTest, FillsEveryElementType) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kBool, {1}, 3));
  EXPECT_THAT(Values<bool>(out), ElementsAre(true));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kInt8, {1}, -128));
  EXPECT_THAT(Values<int8_t>(out), ElementsAre(-128));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kUint8, {1}, 255));
  EXPECT_THAT(Values<uint8_t>(out), ElementsAre(255));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kInt16, {1}, -3.9f));
  EXPECT_THAT(Values<int16_t>(out), ElementsAre(-3));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kInt32, {1}, 7));
  EXPECT_THAT(Values<int32_t>(out), ElementsAre(7));
  WEFT_ASSERT_OK_AND_ASSIGN(out, Fill(DType::kComplex64, {2}, 1.5));
  const float* complex = static_cast<const float*>(out.raw());
  EXPECT_THAT(std::vector<float>(complex, complex + 4), ElementsAre(1.5, 0, 1.5, 0));
}

TEST(FillConstantTest, RoundsToHalfPrecision) {
  const std::vector<std::pair<std::string, uint16_t>> cases = {
      {"0", 0x0000},     {"-0.0", 0x8000},  {"1", 0x3c00},
      {"-2.5", 0xc100},  {"0.1", 0x2e66},   {"65504", 0x7bff},
      {"65519", 0x7bff}, {"65520", 0x7c00}, {"-inf", 0xfc00},
      {"nan", 0x7e00},   {"2049", 0x6800},  {"2051", 0x6802},
      {"6e-8", 0x0001},  {"2e-8", 0x0000},  {"6.103515625e-05", 0x0400},
      {"6.1e-5", 0x03ff}};
  for (const auto& c : cases) {
    WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kFloat16, {1}, 0, c.first));
    EXPECT_EQ(FirstBits<uint16_t>(out), c.second) << c.first;
  }
}

TEST(FillConstantTest, RoundsToBFloat16) {
  const std::vector<std::pair<std::string, uint16_t>> cases = {{"1", 0x3f80},
                                                               {"0.1", 0x3dcd},
                                                               {"1.00390625", 0x3f80},
                                                               {"1.01171875", 0x3f82},
                                                               {"nan", 0x7fc0}};
  for (const auto& c : cases) {
    WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, Fill(DType::kBFloat16, {1}, 0, c.first));
    EXPECT_EQ(FirstBits<uint16_t>(out), c.second) << c.first;
  }
}

// The numbers are those of Paddle 2.6.2 and 3.3.1.
TEST(FillConstantTest, IntegersWrapAsInPaddle) {
  const auto filled = [](DType dtype, float value, const std::string& text = "") {
    return Fill(dtype, {1}, value, text);
  };
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, filled(DType::kUint8, -1, "-1"));
  EXPECT_EQ(FirstBits<uint8_t>(out), 255);
  WEFT_ASSERT_OK_AND_ASSIGN(out, filled(DType::kUint8, 300));
  EXPECT_EQ(FirstBits<uint8_t>(out), 44);
  WEFT_ASSERT_OK_AND_ASSIGN(out, filled(DType::kInt8, 200));
  EXPECT_EQ(FirstBits<int8_t>(out), -56);
  WEFT_ASSERT_OK_AND_ASSIGN(out, filled(DType::kInt16, 70000));
  EXPECT_EQ(FirstBits<int16_t>(out), 4464);
  WEFT_ASSERT_OK_AND_ASSIGN(out, filled(DType::kInt32, 0, "2147483648"));
  EXPECT_EQ(FirstBits<int32_t>(out), std::numeric_limits<int32_t>::min());
  WEFT_ASSERT_OK_AND_ASSIGN(out, filled(DType::kInt64, 9.3e18f));
  EXPECT_EQ(FirstBits<int64_t>(out), std::numeric_limits<int64_t>::min());
}

TEST(FillConstantTest, IntegersAreFinite) {
  EXPECT_THAT(Fill(DType::kInt8, {1}, INFINITY), IsInvalidArgument("inf does not fit int8"));
  EXPECT_THAT(Fill(DType::kInt32, {1}, 0, "nan"),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

TEST(FillConstantTest, NonNumericTextIsAnError) {
  EXPECT_THAT(Fill(DType::kFloat32, {1}, 0, "one"), IsInvalidArgument("'one' is no number"));
}

TEST(FillConstantTest, ImpossibleShapesAreErrors) {
  EXPECT_THAT(Fill(DType::kFloat32, {2, -1}, 0), IsInvalidArgument("dimension -1 at 1"));
  EXPECT_THAT(Fill(DType::kFloat32, {1LL << 40, 1LL << 40}, 0),
              IsInvalidArgument("attribute shape"));
}

TEST(FillConstantTest, ATensorMayGiveTheShape) {
  Tensor shape = MakeTensor<int64_t>({1}, {2}), out;
  WEFT_ASSERT_OK(RunOpOn("fill_constant", {{"ShapeTensor", {&shape}}}, {}, {{"Out", {&out}}}));
  EXPECT_THAT(out.dims(), ElementsAre(2));
}

TEST(AssignValueTest, ThereIsAValueForEveryElement) {
  const auto assign = [](const Longs& values) {
    return RunOp("assign_value", {},
                 {{"shape", std::vector<int32_t>{2}},
                  {"dtype", static_cast<int32_t>(DType::kInt64)},
                  {"int64_values", values}},
                 {{"Out", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, assign({7, int64_t{1} << 60}));
  EXPECT_EQ(Values<int64_t>(out["Out"][0]), (Longs{7, int64_t{1} << 60}));
  EXPECT_THAT(assign({7}), IsInvalidArgument("one of 1 elements, found [2]"));
}

// As Paddle 3 writes them.
TEST(AssignValueTest, ScalarsTakeTheElementType) {
  const auto assign = [](DType dtype, std::vector<Scalar> values) {
    return RunOp("assign_value", {},
                 {{"shape", std::vector<int32_t>{2}},
                  {"dtype", static_cast<int32_t>(dtype)},
                  {"values", std::move(values)}},
                 {{"Out", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto longs, assign(DType::kInt64, {int64_t{1} << 60, int64_t{-3}}));
  EXPECT_EQ(Values<int64_t>(longs["Out"][0]), (Longs{int64_t{1} << 60, -3}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto floats, assign(DType::kFloat32, {-0.5, int64_t{2}}));
  EXPECT_EQ(Values<float>(floats["Out"][0]), (std::vector<float>{-0.5f, 2}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto bools, assign(DType::kBool, {true, false}));
  EXPECT_EQ(Values<bool>(bools["Out"][0]), (std::vector<bool>{true, false}));
  EXPECT_THAT(assign(DType::kInt64, {int64_t{1}}),
              IsInvalidArgument("one of 1 elements, found [2]"));
}

TEST(LinspaceTest, EndsAtStop) {
  const auto line = [](float start, float stop, int32_t num) {
    return RunOp("linspace",
                 {{"Num", {MakeTensor<int32_t>({1}, {num})}},
                  {"Start", {MakeTensor<float>({1}, {start})}},
                  {"Stop", {MakeTensor<float>({1}, {stop})}}},
                 {}, {{"Out", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, line(3, 1, 5));
  EXPECT_EQ(Values<float>(out["Out"][0]), (std::vector<float>{3, 2.5, 2, 1.5, 1}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto one, line(3, 1, 1));
  EXPECT_EQ(Values<float>(one["Out"][0]), std::vector<float>{3});
  EXPECT_THAT(line(0, 1, 0), IsInvalidArgument("input Num"));
}

}  // namespace
}  // namespace weft::testing
