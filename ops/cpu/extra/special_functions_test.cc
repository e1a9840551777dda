// What the vectors of op_vectors_test leave out: large arguments, poles, errors.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor Doubles(const std::vector<double>& values) {
  return MakeTensor<double>({static_cast<int64_t>(values.size())}, values);
}

std::vector<double> Of(const std::string& type, const std::vector<double>& x,
                       const AttrValues& attrs = {}) {
  auto out = RunOp(type, {{"x", {Doubles(x)}}}, attrs, {{"out", 1}});
  WEFT_EXPECT_OK(out.status());
  return out.ok() ? Values<double>((*out)["out"][0]) : std::vector<double>();
}

// Of a gradient of ones.
std::vector<double> SlopeOf(const std::string& type, const std::vector<double>& x) {
  auto out = RunOp(type + "_grad",
                   {{"x", {Doubles(x)}},
                    {"out", {Doubles(Of(type, x))}},
                    {"out@GRAD", {Doubles(std::vector<double>(x.size(), 1))}}},
                   {}, {{"x@GRAD", 1}});
  WEFT_EXPECT_OK(out.status());
  return out.ok() ? Values<double>((*out)["x@GRAD"][0]) : std::vector<double>();
}

std::vector<double> Polygamma(int n, const std::vector<double>& x) {
  return Of("polygamma", x, {{"n", n}});
}

// The function of the standard library has another algorithm.
TEST(BesselTest, BothSeriesAreThoseOfTheStandardLibrary) {
  for (double x : {1e-8, 0.3, 5.0, 19.9, 20.1, 60.0, 300.0}) {
    const double i0 = std::cyl_bessel_i(0.0, x), i1 = std::cyl_bessel_i(1.0, x);
    EXPECT_NEAR(Of("i0", {x})[0] / i0, 1, 1e-13) << x;
    EXPECT_NEAR(Of("i1", {-x})[0] / -i1, 1, 1e-13) << x;
    EXPECT_NEAR(Of("i0e", {-x})[0] / (std::exp(-x) * i0), 1, 1e-13) << x;
    EXPECT_NEAR(Of("i1e", {-x})[0] / (-std::exp(-x) * i1), 1, 1e-13) << x;
  }
}

TEST(BesselTest, ScaledFunctionsEndAtZero) {
  EXPECT_THAT(Of("i0e", {kInfinity, -kInfinity, NAN}), ElementsAre(0, 0, IsNan()));
  EXPECT_NEAR(Of("i1e", {1e6})[0], 1 / std::sqrt(2e6 * M_PI), 1e-9);
}

TEST(BesselTest, SlopesAtZeroAreLimits) {
  EXPECT_THAT(SlopeOf("i0", {0.0}), ElementsAre(0));
  EXPECT_THAT(SlopeOf("i1", {0.0, -0.0}), ElementsAre(0.5, 0.5));
  EXPECT_THAT(SlopeOf("i1e", {0.0}), ElementsAre(0.5));
  EXPECT_THAT(SlopeOf("i0e", {0.0, -0.0}), ElementsAre(-1, 1));
}

TEST(PolygammaTest, IntegersAndHalvesHaveSumsOfSquares) {
  const double pi2 = M_PI * M_PI;
  EXPECT_NEAR(Polygamma(1, {1})[0], pi2 / 6, 1e-13);
  EXPECT_NEAR(Polygamma(1, {0.5})[0], pi2 / 2, 1e-13);
  EXPECT_NEAR(Polygamma(3, {1})[0], pi2 * pi2 / 15, 1e-12);
  // The recurrence: of x + 1, 2 / x^3 more than of x.
  EXPECT_NEAR(Polygamma(2, {-1.5})[0] + 2 / std::pow(-1.5, 3), Polygamma(2, {-0.5})[0], 1e-11);
}

TEST(PolygammaTest, OfOrderZeroIsDigamma) {
  auto out = RunOp("digamma", {{"X", {Doubles({-1.5, 0.25, 30})}}}, {}, {{"Out", 1}});
  ASSERT_THAT(out, IsOk());
  EXPECT_EQ(Polygamma(0, {-1.5, 0.25, 30}), Values<double>((*out)["Out"][0]));
}

TEST(PolygammaTest, PolesAreInfiniteAndLargeArgumentsEnd) {
  EXPECT_THAT(Polygamma(1, {0, -2, NAN, kInfinity}), ElementsAre(kInfinity, kInfinity, IsNan(), 0));
  EXPECT_THAT(Polygamma(2, {0, -2}), ElementsAre(-kInfinity, -kInfinity));
  // (pi / sin(pi x))^2 less that of 1 - x.
  EXPECT_NEAR(Polygamma(1, {-1e9 - 0.5})[0], M_PI * M_PI, 1e-8);
}

TEST(PolygammaTest, NegativeOrdersAreErrors) {
  EXPECT_THAT(RunOp("polygamma", {{"x", {Doubles({1})}}}, {{"n", -1}}, {{"out", 1}}),
              IsInvalidArgument("attribute n"));
}

TEST(CopysignTest, ZerosHaveSignsAndNoGradient) {
  const SlotTensors inputs = {{"x", {Doubles({3, 0, -2})}}, {"y", {Doubles({-0.0})}}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("copysign", inputs, {}, {{"out", 1}}));
  const std::vector<double> values = Values<double>(out["out"][0]);
  EXPECT_THAT(values, ElementsAre(-3, 0, -2));
  EXPECT_TRUE(std::signbit(values[1]));
  SlotTensors grad_inputs = inputs;
  grad_inputs.push_back({"out@GRAD", {Doubles({10, 20, 30})}});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto grads, RunOp("copysign_grad", grad_inputs, {}, {{"x@GRAD", 1}, {"y@GRAD", 1}}));
  EXPECT_THAT(Values<double>(grads["x@GRAD"][0]), ElementsAre(-10, 0, 30));
  EXPECT_THAT(Values<double>(grads["y@GRAD"][0]), ElementsAre(0));
}

}  // namespace
}  // namespace weft::testing
