#include <cmath>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

std::vector<float> LogCumsumExp(const std::vector<float>& x, bool reverse = false) {
  const int64_t n = static_cast<int64_t>(x.size());
  auto out = RunOp("logcumsumexp", {{"X", {Floats({n}, x)}}}, {{"reverse", reverse}}, {{"Out", 1}});
  EXPECT_THAT(out, IsOk());
  return Values<float>((*out)["Out"][0]);
}

std::vector<float> LogCumsumExpGrad(const std::vector<float>& x, const std::vector<float>& dout,
                                    bool exclusive = false) {
  const int64_t n = static_cast<int64_t>(x.size());
  auto out =
      RunOp("logcumsumexp", {{"X", {Floats({n}, x)}}}, {{"exclusive", exclusive}}, {{"Out", 1}});
  EXPECT_THAT(out, IsOk());
  auto dx = RunOp(
      "logcumsumexp_grad",
      {{"Out", {(*out)["Out"][0]}}, {"Out@GRAD", {Floats({n}, dout)}}, {"X", {Floats({n}, x)}}},
      {{"exclusive", exclusive}}, {{"X@GRAD", 1}});
  EXPECT_THAT(dx, IsOk());
  return Values<float>((*dx)["X@GRAD"][0]);
}

std::vector<float> CumprodGrad(const std::vector<float>& x, const std::vector<float>& dout) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Tensor xs = Floats({n}, x);
  auto dx = RunOp("cumprod_grad", {{"Out", {xs}}, {"Out@GRAD", {Floats({n}, dout)}}, {"X", {xs}}},
                  {{"dim", 0}}, {{"X@GRAD", 1}});
  EXPECT_THAT(dx, IsOk());
  return Values<float>((*dx)["X@GRAD"][0]);
}

TEST(LogCumsumExpTest, InfiniteOnes) {
  EXPECT_THAT(LogCumsumExp({-INFINITY, 1, INFINITY, 2}),
              ElementsAre(-INFINITY, 1, INFINITY, INFINITY));
}

TEST(LogCumsumExpTest, LargeOnesDoNotOverflow) {
  EXPECT_THAT(LogCumsumExp({1000, 1000}, /*reverse=*/true),
              ElementsAre(FloatEq(1000 + std::log(2.0f)), 1000));
}

TEST(LogCumsumExpGradTest, IsTheShareOfEachSum) {
  // Out = log 1, log 4
  EXPECT_THAT(LogCumsumExpGrad({0, std::log(3.0f)}, {2, 4}),
              ElementsAre(FloatEq(2 + 1), FloatEq(3)));
  // Out = log 0, log 1, log 4
  EXPECT_THAT(LogCumsumExpGrad({0, std::log(3.0f), 7}, {5, 2, 4}, /*exclusive=*/true),
              ElementsAre(FloatEq(2 + 1), FloatEq(3), 0));
}

TEST(LogCumsumExpGradTest, InfiniteOnes) {
  EXPECT_THAT(LogCumsumExpGrad({-INFINITY, 1, INFINITY}, {2, 3, 5}), ElementsAre(2, 3, 5));
}

TEST(LogCumsumExpGradTest, CostIsLinear) {
  constexpr int kSize = 300000;
  const std::vector<float> dx =
      LogCumsumExpGrad(std::vector<float>(kSize, 0), std::vector<float>(kSize, 1));
  EXPECT_THAT(dx[kSize - 1], FloatNear(1.0f / kSize, 1e-10));
  EXPECT_THAT(dx[0], FloatNear(std::log(kSize) + 0.5772157f, 1e-3));  // 1 + 1/2 + ... + 1/kSize
}

TEST(CumprodGradTest, ZerosLeaveTheProductsOfTheOthers) {
  // Out = 2, 2 0, 2 0 3
  EXPECT_THAT(CumprodGrad({2, 0, 3}, {5, 7, 11}), ElementsAre(5, 2 * 7 + 2 * 3 * 11, 0));
  EXPECT_THAT(CumprodGrad({2, 0, 0}, {5, 7, 11}), ElementsAre(5, 2 * 7, 0));
}

TEST(CumprodGradTest, CostIsLinear) {
  constexpr int kSize = 300000;
  const std::vector<float> dx =
      CumprodGrad(std::vector<float>(kSize, 1), std::vector<float>(kSize, 0.5));
  EXPECT_EQ(dx[0], kSize * 0.5f);
  EXPECT_EQ(dx[kSize - 1], 0.5f);
}

}  // namespace
}  // namespace weft::testing
