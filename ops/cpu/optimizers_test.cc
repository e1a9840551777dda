#include <cmath>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

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
              IsInvalidArgument("input Grad: expected dimensions [2]"));
}

TEST(SgdTest, LearningRateMustBeOneNumber) {
  Tensor p = Floats({2}, {1, 2}), lr = Floats({2}, {0.5, 0.5});
  EXPECT_THAT(RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&p}}, {"LearningRate", {&lr}}}, {},
                      {{"ParamOut", {&p}}}),
              IsInvalidArgument("input LearningRate"));
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
              IsUnimplemented("'l1_decay'"));
}

TEST(SgdTest, GradientOfAnotherElementTypeIsAnError) {
  Tensor p = MakeTensor<double>({1}, {1}), g = Floats({1}, {2}), lr = Floats({}, {0.5});
  EXPECT_THAT(
      RunOpOn("sgd", {{"Param", {&p}}, {"Grad", {&g}}, {"LearningRate", {&lr}}}, {},
              {{"ParamOut", {&p}}}),
      StatusIs(absl::StatusCode::kInvalidArgument, "input Grad: expected fp64, found fp32"));
}

TEST(AdagradTest, DividesByTheRootOfTheSumOfSquares) {
  Tensor p = Floats({1}, {1}), g = Floats({1}, {3}), lr = Floats({}, {0.5}), m = Floats({1}, {16});
  WEFT_ASSERT_OK(RunOpOn(
      "adagrad", {{"Param", {&p}}, {"Grad", {&g}}, {"LearningRate", {&lr}}, {"Moment", {&m}}},
      {{"epsilon", 1.0f}}, {{"ParamOut", {&p}}, {"MomentOut", {&m}}}));
  EXPECT_THAT(Values<float>(m), ElementsAre(25));
  EXPECT_THAT(Values<float>(p), ElementsAre(0.75));
}

// All variables of rmsprop, for one parameter of one element.
struct RmspropTest : public ::testing::Test {
  Tensor p = Floats({1}, {1}), g = Floats({1}, {2}), lr = Floats({}, {1});
  Tensor square = Floats({1}, {4}), moment = Floats({1}, {2}), mean = Floats({1}, {2});
  AttrValues attrs = {{"decay", 0.5f}, {"epsilon", 0.0f}, {"momentum", 0.5f}};
  SlotPointers inputs = {{"Param", {&p}},           {"Grad", {&g}},        {"LearningRate", {&lr}},
                         {"MeanSquare", {&square}}, {"Moment", {&moment}}, {"MeanGrad", {&mean}}};
  SlotPointers outputs = {{"ParamOut", {&p}},
                          {"MeanSquareOut", {&square}},
                          {"MomentOut", {&moment}},
                          {"MeanGradOut", {&mean}}};
};

TEST_F(RmspropTest, DividesByTheRootOfTheMeanSquareAndKeepsMoment) {
  WEFT_ASSERT_OK(RunOpOn("rmsprop", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(square), ElementsAre(4));
  EXPECT_THAT(Values<float>(moment), ElementsAre(2));  // 0.5 · 2 + 2 / √4
  EXPECT_THAT(Values<float>(p), ElementsAre(-1));
}

TEST_F(RmspropTest, CenteredTakesTheVariance) {
  attrs.push_back({"centered", true});
  attrs[1].second = 1.0f;
  mean = Floats({1}, {-2});
  WEFT_ASSERT_OK(RunOpOn("rmsprop", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(mean), ElementsAre(0));
  EXPECT_FLOAT_EQ(Values<float>(moment)[0], 1 + 2 / std::sqrt(5.0f));
}

TEST_F(RmspropTest, MeanGradMayBeMissingWhereItIsNotNeeded) {
  inputs.pop_back();
  outputs.pop_back();
  WEFT_EXPECT_OK(RunOpOn("rmsprop", inputs, attrs, outputs));
  attrs.push_back({"centered", true});
  EXPECT_THAT(RunOpOn("rmsprop", inputs, attrs, outputs),
              StatusIs(absl::StatusCode::kInvalidArgument, "input MeanGrad: missing"));
}

TEST_F(RmspropTest, UncenteredPassesMeanGradOn) {
  Tensor out;
  outputs.back().second = {&out};
  WEFT_ASSERT_OK(RunOpOn("rmsprop", inputs, attrs, outputs));
  EXPECT_THAT(Values<float>(out), ElementsAre(2));
}

}  // namespace
}  // namespace weft::testing
