#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

// Everything that adam reads and writes, for one parameter of one element.
struct AdamTest : public ::testing::Test {
  Tensor p = Floats({1}, {1}), g = Floats({1}, {2}), lr = Floats({}, {0.5});
  Tensor m1 = Floats({1}, {0}), m2 = Floats({1}, {0});
  Tensor b1 = Floats({1}, {0.5}), b2 = Floats({1}, {0.75});
  AttrValues attrs = {{"beta1", 0.5f}, {"beta2", 0.75f}, {"epsilon", 0.0f}};
  SlotPointers inputs = {{"Param", {&p}},    {"Grad", {&g}},     {"LearningRate", {&lr}},
                         {"Moment1", {&m1}}, {"Moment2", {&m2}}, {"Beta1Pow", {&b1}},
                         {"Beta2Pow", {&b2}}};
  SlotPointers outputs = {{"ParamOut", {&p}},
                          {"Moment1Out", {&m1}},
                          {"Moment2Out", {&m2}},
                          {"Beta1PowOut", {&b1}},
                          {"Beta2PowOut", {&b2}}};
};

TEST_F(AdamTest, FirstStepHasTheSizeOfTheLearningRate) {
  WEFT_ASSERT_OK(RunOpOn("adam", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(m1), ElementsAre(1));
  EXPECT_THAT(Values<float>(m2), ElementsAre(1));
  EXPECT_THAT(Values<float>(p), ElementsAre(0.5));
}

TEST_F(AdamTest, PowersAdvanceAfterTheyAreUsed) {
  WEFT_ASSERT_OK(RunOpOn("adam", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(b1), ElementsAre(0.25));
  EXPECT_THAT(Values<float>(b2), ElementsAre(0.5625));
}

TEST_F(AdamTest, EpsilonIsScaledByTheCorrectionOfTheSecondMoment) {
  attrs[2].second = 1.0f;
  WEFT_ASSERT_OK(RunOpOn("adam", inputs, attrs, outputs));
  // lr' = 0.5 √0.25 / 0.5, over √1 + 1 √0.25.
  EXPECT_THAT(Values<float>(p), ElementsAre(FloatEq(1 - 0.5f / 1.5f)));
}

TEST_F(AdamTest, GlobalPowersAreLeftAlone) {
  attrs.emplace_back("use_global_beta_pow", true);
  WEFT_ASSERT_OK(RunOpOn("adam", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(b1), ElementsAre(0.5));
}

TEST_F(AdamTest, SkipUpdateLeavesEverything) {
  Tensor skip = MakeTensor<bool>({1}, {true});
  inputs.push_back({"SkipUpdate", {&skip}});
  WEFT_ASSERT_OK(RunOpOn("adam", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p), ElementsAre(1));
  EXPECT_THAT(Values<float>(m1), ElementsAre(0));
  EXPECT_THAT(Values<float>(b1), ElementsAre(0.5));
}

TEST_F(AdamTest, TensorsReplaceAttributes) {
  Tensor beta1 = Floats({1}, {0});
  inputs.push_back({"Beta1Tensor", {&beta1}});
  WEFT_ASSERT_OK(RunOpOn("adam", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(m1), ElementsAre(2));
  EXPECT_THAT(Values<float>(b1), ElementsAre(0));
}

TEST_F(AdamTest, MomentOfAnotherSizeIsAnError) {
  m1 = Floats({2}, {0, 0});
  EXPECT_THAT(RunOpOn("adam", inputs, attrs, outputs), IsInvalidArgument("input Moment1"));
}

TEST_F(AdamTest, StateOfAnotherElementTypeIsAnError) {
  m2 = MakeTensor<double>({1}, {0});
  EXPECT_THAT(
      RunOpOn("adam", inputs, attrs, outputs),
      StatusIs(absl::StatusCode::kInvalidArgument, "input Moment2: expected fp32, found fp64"));
}

TEST_F(AdamTest, AdamWShrinksTheParameterFirst) {
  attrs.insert(attrs.end(), {{"with_decay", true}, {"coeff", 0.5f}});
  WEFT_ASSERT_OK(RunOpOn("adamw", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p), ElementsAre(0.75f - 0.5f));  // (1 - lr coeff) p - lr
}

TEST_F(AdamTest, AdamWWithoutDecayIsAdam) {
  attrs.insert(attrs.end(), {{"with_decay", false}, {"coeff", 0.5f}});
  WEFT_ASSERT_OK(RunOpOn("adamw", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p), ElementsAre(0.5));
}

// Paddle's CPU kernel has the ratio in the decay only.
TEST_F(AdamTest, LrRatioCountsInDecayAndUpdate) {
  attrs.insert(attrs.end(), {{"with_decay", true}, {"coeff", 0.5f}, {"lr_ratio", 0.5f}});
  WEFT_ASSERT_OK(RunOpOn("adamw", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p), ElementsAre(0.875f - 0.25f));
}

// Paddle 3.3.1 gives these parameters.
TEST_F(AdamTest, AmsgradDividesByTheLargestSecondMoment) {
  const std::pair<const char*, std::vector<float>> updates[] = {
      {"adam", {0.80968469f, -1.9465772f}}, {"adamw", {0.78260756f, -1.888932f}}};
  for (const auto& [type, expected] : updates) {
    Tensor param = Floats({2}, {1, -2}), rate = Floats({1}, {0.1});
    Tensor m = Floats({2}, {0, 0}), v = Floats({2}, {0, 0}), v_max = Floats({2}, {0, 0});
    Tensor power1 = Floats({1}, {0.9}), power2 = Floats({1}, {0.5});
    AttrValues amsgrad = {{"amsgrad", true}, {"beta2", 0.5f}};
    if (type == std::string("adamw")) {
      amsgrad.insert(amsgrad.end(), {{"coeff", 0.1f}, {"with_decay", true}});
    }
    for (const auto& values :
         {std::pair(3.0f, -0.5f), std::pair(0.25f, 0.75f), std::pair(-1.0f, 0.125f)}) {
      Tensor grad = Floats({2}, {values.first, values.second});
      WEFT_ASSERT_OK(RunOpOn(type,
                             {{"Param", {&param}},
                              {"Grad", {&grad}},
                              {"LearningRate", {&rate}},
                              {"Moment1", {&m}},
                              {"Moment2", {&v}},
                              {"Moment2Max", {&v_max}},
                              {"Beta1Pow", {&power1}},
                              {"Beta2Pow", {&power2}}},
                             amsgrad,
                             {{"ParamOut", {&param}},
                              {"Moment1Out", {&m}},
                              {"Moment2Out", {&v}},
                              {"Moment2MaxOut", {&v_max}},
                              {"Beta1PowOut", {&power1}},
                              {"Beta2PowOut", {&power2}}}));
    }
    EXPECT_THAT(Values<float>(param), Pointwise(FloatNear(1e-6f), expected)) << type;
  }
}

TEST_F(AdamTest, LambStepsInProportionToTheParameter) {
  attrs.push_back({"weight_decay", 1.0f});
  p = Floats({1}, {8});
  WEFT_ASSERT_OK(RunOpOn("lamb", inputs, attrs, outputs));
  // The direction, 2 / √4 + 8, is scaled to the norm of p.
  EXPECT_THAT(Values<float>(p), ElementsAre(FloatEq(8 - 0.5f * 8)));
  EXPECT_THAT(Values<float>(b1), ElementsAre(0.25));
}

TEST_F(AdamTest, LambWithoutDecayAdaptsOnlyIfItAlwaysDoes) {
  attrs.push_back({"weight_decay", 0.0f});
  p = Floats({1}, {8});
  WEFT_ASSERT_OK(RunOpOn("lamb", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p), ElementsAre(FloatEq(8 - 0.5f)));
  attrs.push_back({"always_adapt", true});
  p = Floats({1}, {8}), m1 = Floats({1}, {0}), m2 = Floats({1}, {0});
  b1 = Floats({1}, {0.5}), b2 = Floats({1}, {0.75});
  WEFT_ASSERT_OK(RunOpOn("lamb", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(p), ElementsAre(FloatEq(8 - 0.5f * 8)));
}

// Squares of such parameters do not fit into fp32.
TEST_F(AdamTest, LambStepsInProportionToTinyAndHugeParameters) {
  for (const float size : {1e-25F, 1e25F}) {
    attrs = {{"beta1", 0.5F}, {"beta2", 0.75F}, {"epsilon", 0.0F}, {"weight_decay", 0.0F}};
    attrs.push_back({"always_adapt", true});
    p = Floats({1}, {size}), m1 = Floats({1}, {0}), m2 = Floats({1}, {0});
    b1 = Floats({1}, {0.5}), b2 = Floats({1}, {0.75});
    WEFT_ASSERT_OK(RunOpOn("lamb", inputs, attrs, outputs));
    EXPECT_THAT(Values<float>(p), ElementsAre(FloatEq(size - 0.5F * size)));
  }
}

// Of rows that are longer than a block, and of a parameter that threads share.
TEST_F(AdamTest, LambTakesNormsOfAllElements) {
  constexpr int64_t kRows = 17, kWidth = 2500, kSize = kRows * kWidth;
  std::vector<float> params(kSize), grads(kSize);
  std::vector<int64_t> rows(kRows);
  for (int64_t i = 0; i < kSize; ++i) {
    params[i] = 1 + static_cast<float>(i % 31) / 16;
    grads[i] = static_cast<float>(i % 13) / 8 - 0.5F;
  }
  std::iota(rows.begin(), rows.end(), 0);
  // With betas of 1/2 and no steps so far, the moments are g/2 and g²/2, and corrected g and g².
  double p_squares = 0, r_squares = 0;
  const auto direction = [&](int64_t i) {
    const double g = grads[i];
    return g / (std::abs(g) + 0.25) + 0.5 * params[i];
  };
  for (int64_t i = 0; i < kSize; ++i) {
    p_squares += double{params[i]} * params[i];
    r_squares += direction(i) * direction(i);
  }
  std::vector<float> expected(kSize);
  for (int64_t i = 0; i < kSize; ++i) {
    expected[i] =
        static_cast<float>(params[i] - 0.125 * std::sqrt(p_squares / r_squares) * direction(i));
  }
  attrs = {{"beta1", 0.5F}, {"beta2", 0.5F}, {"epsilon", 0.25F}, {"weight_decay", 0.5F}};
  std::vector<std::vector<float>> results;
  for (const bool is_sparse : {false, true}) {
    for (const int threads : {1, 3}) {
      p = Floats({kRows, kWidth}, params), lr = Floats({1}, {0.125F});
      g = is_sparse ? Rows({kRows, kWidth}, rows, grads) : Floats({kRows, kWidth}, grads);
      m1 = Floats({kRows, kWidth}, std::vector<float>(kSize)), m2 = m1.Clone();
      b1 = Floats({1}, {0.5}), b2 = Floats({1}, {0.5});
      SetKernelThreads(threads);
      WEFT_ASSERT_OK(RunOpOn("lamb", inputs, attrs, outputs));
      SetKernelThreads(1);
      results.push_back(Values<float>(p));
      EXPECT_THAT(results.back(), Pointwise(FloatNear(2e-6F), expected)) << is_sparse;
    }
    EXPECT_EQ(results[results.size() - 2], results.back()) << is_sparse;
  }
}

}  // namespace
}  // namespace weft::testing
