#include <cmath>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SgdTest, StepsAgainstTheGradientInPlace) {
  Tensor p = Floats({2}, {1, 2}), g = Floats({2}, {2, -4}), lr = Floats({}, {0.5});
  WEFT_ASSERT_OK(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&g}}, {"LearningRate", {&lr}}}, {},
                         {{"ParamOut", {&p}}}));
  EXPECT_THAT(Values<float>(p), ElementsAre(0, 4));
}

TEST(SgdTest, ParamOutMayBeAnotherVariable) {
  Tensor p = Floats({1}, {1}), g = Floats({1}, {2}), lr = Floats({1}, {0.5}), out;
  WEFT_ASSERT_OK(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&g}}, {"LearningRate", {&lr}}}, {},
                         {{"ParamOut", {&out}}}));
  EXPECT_THAT(Values<float>(p), ElementsAre(1));
  EXPECT_THAT(Values<float>(out), ElementsAre(0));
}

TEST(SgdTest, GradientOfAnotherSizeIsAnError) {
  Tensor p = Floats({2}, {1, 2}), g = Floats({1}, {2}), lr = Floats({}, {0.5});
  EXPECT_THAT(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&g}}, {"LearningRate", {&lr}}}, {},
                      {{"ParamOut", {&p}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input Grad: expected 2")));
}

TEST(SgdTest, LearningRateMustBeOneNumber) {
  Tensor p = Floats({2}, {1, 2}), lr = Floats({2}, {0.5, 0.5});
  EXPECT_THAT(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&p}}, {"LearningRate", {&lr}}}, {},
                      {{"ParamOut", {&p}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input LearningRate")));
}

// Runs momentum twice with gradient 1 and learning rate 1 from p = 8, v = 0; returns {p, v}.
absl::StatusOr<std::vector<float>> TwoMomentumSteps(const AttrValues& attrs) {
  Tensor p = Floats({1}, {8}), v = Floats({1}, {0}), g = Floats({1}, {1}), lr = Floats({}, {1});
  const SlotPointers inputs = {
      {"Param", {&p}}, {"Velocity", {&v}}, {"Grad", {&g}}, {"LearningRate", {&lr}}};
  const SlotPointers outputs = {{"ParamOut", {&p}}, {"VelocityOut", {&v}}};
  for (int step = 0; step < 2; ++step) {
    const absl::Status status = RunOpOn("momentum", inputs, attrs, outputs);
    if (!status.ok()) return status;
  }
  return std::vector<float>{p.data<float>()[0], v.data<float>()[0]};
}

TEST(MomentumTest, VelocityGathersGradients) {
  EXPECT_THAT(TwoMomentumSteps({{"mu", 0.5f}}), IsOkAndHolds(ElementsAre(5.5, 1.5)));
}

TEST(MomentumTest, NesterovLooksAhead) {
  EXPECT_THAT(TwoMomentumSteps({{"mu", 0.5f}, {"use_nesterov", true}}),
              IsOkAndHolds(ElementsAre(4.75, 1.5)));
}

TEST(MomentumTest, L2DecayAddsTheParameter) {
  EXPECT_THAT(TwoMomentumSteps({{"mu", 0.0f},
                                {"regularization_method", std::string("l2_decay")},
                                {"regularization_coeff", 0.5f}}),
              IsOkAndHolds(ElementsAre(0.5, 2.5)));
}

TEST(MomentumTest, RescaleGradMultipliesTheGradient) {
  EXPECT_THAT(TwoMomentumSteps({{"mu", 0.5f}, {"rescale_grad", 2.0f}}),
              IsOkAndHolds(ElementsAre(3, 3)));
}

TEST(MomentumTest, UnknownRegularizationIsRefused) {
  EXPECT_THAT(TwoMomentumSteps({{"mu", 0.5f}, {"regularization_method", std::string("l1_decay")}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("'l1_decay'")));
}

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
  EXPECT_THAT(Values<float>(p), ElementsAre(::testing::FloatEq(1 - 0.5f / 1.5f)));
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

TEST_F(AdamTest, MasterParametersAreRefused) {
  inputs.push_back({"MasterParam", {&p}});
  EXPECT_THAT(RunOpOn("adam", inputs, attrs, outputs),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("input MasterParam")));
}

TEST_F(AdamTest, MomentOfAnotherSizeIsAnError) {
  m1 = Floats({2}, {0, 0});
  EXPECT_THAT(RunOpOn("adam", inputs, attrs, outputs),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input Moment1")));
}

}  // namespace
}  // namespace weft::testing
