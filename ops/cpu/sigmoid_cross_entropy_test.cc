#include <cmath>
#include <string>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr char kOp[] = "sigmoid_cross_entropy_with_logits";
const SlotCounts kOut = {{"Out", 1}};

TEST(SigmoidCrossEntropyTest, OfALogitOfZeroIsLogTwo) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp(kOp, {{"X", {Floats({2}, {0, 0})}}, {"Label", {Floats({2}, {0, 1})}}}, {}, kOut));
  EXPECT_THAT(Values<float>(out["Out"][0]),
              ElementsAre(FloatEq(std::log(2.0f)), FloatEq(std::log(2.0f))));
}

TEST(SigmoidCrossEntropyTest, LargeLogitsDoNotOverflow) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(kOp,
                                            {{"X", {Floats({4}, {200, 200, -200, -200})}},
                                             {"Label", {Floats({4}, {1, 0, 1, 0})}}},
                                            {}, kOut));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 200, 200, 0));
}

TEST(SigmoidCrossEntropyTest, IgnoredLabelsCountNeitherInTheSumNorInTheDivisor) {
  const SlotTensors inputs = {{"X", {Floats({3}, {0, 5, 0})}},
                              {"Label", {Floats({3}, {1, -1, 1})}}};
  const AttrValues attrs = {{"ignore_index", -1}, {"normalize", true}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(kOp, inputs, attrs, kOut));
  const float half = std::log(2.0f) / 2;
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(FloatEq(half), 0, FloatEq(half)));

  SlotTensors grad_inputs = inputs;
  grad_inputs.push_back({"Out@GRAD", {Floats({3}, {1, 1, 4})}});
  WEFT_ASSERT_OK_AND_ASSIGN(out,
                            RunOp(std::string(kOp) + "_grad", grad_inputs, attrs, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]), ElementsAre(-0.25f, 0, -1));
}

TEST(SigmoidCrossEntropyTest, NothingIsDividedByZeroLabels) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp(kOp, {{"X", {Floats({1}, {3})}}, {"Label", {Floats({1}, {-1})}}},
                                  {{"ignore_index", -1}, {"normalize", true}}, kOut));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0));
}

TEST(SigmoidCrossEntropyTest, GradientMayTakeThePlaceOfX) {
  Tensor x = Floats({2}, {0, 100}), label = Floats({2}, {0, 0}), dout = Floats({2}, {2, 3});
  WEFT_ASSERT_OK(RunOpOn("sigmoid_cross_entropy_with_logits_grad",
                         {{"X", {&x}}, {"Label", {&label}}, {"Out@GRAD", {&dout}}}, {},
                         {{"X@GRAD", {&x}}}));
  EXPECT_THAT(Values<float>(x), ElementsAre(1, FloatNear(3, 1e-6f)));
}

TEST(SigmoidCrossEntropyTest, WrongNumberOfLabelsIsAnError) {
  EXPECT_THAT(RunOp(kOp, {{"X", {Floats({2}, {0, 0})}}, {"Label", {Floats({1}, {0})}}}, {}, kOut),
              IsInvalidArgument("input Label: expected"));
}

TEST(SigmoidCrossEntropyTest, WrongNumberOfWeightsIsAnError) {
  const Tensor x = Floats({2}, {0, 0}), weight = Floats({1}, {1});
  EXPECT_THAT(RunOp(kOp, {{"X", {x}}, {"Label", {x}}, {"pos_weight", {weight}}}, {}, kOut),
              IsInvalidArgument("input pos_weight"));
}

}  // namespace
}  // namespace weft::testing
