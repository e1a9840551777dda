#include <cmath>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr const char* kLossOp = "softmax_with_cross_entropy";
const SlotCounts kOutputs = {{"Softmax", 1}, {"Loss", 1}};

Tensor Labels(const Dims& dims, const std::vector<int64_t>& values) {
  return MakeTensor<int64_t>(dims, values);
}

TEST(SoftmaxWithCrossEntropyTest, LossIsMinusLogOfTheLabelsProbability) {
  const float ln3 = std::log(3.0f);
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(kLossOp,
                                            {{"Logits", {Floats({2, 2}, {0, ln3, 5, 5})}},
                                             {"Label", {Labels({2, 1}, {1, 0})}}},
                                            {}, kOutputs));
  EXPECT_THAT(Values<float>(out["Softmax"][0]),
              Pointwise(FloatNear(1e-6), {0.25f, 0.75f, 0.5f, 0.5f}));
  EXPECT_THAT(out["Loss"][0].dims(), ElementsAre(2, 1));
  EXPECT_THAT(Values<float>(out["Loss"][0]),
              Pointwise(FloatNear(1e-6), {std::log(4 / 3.0f), std::log(2.0f)}));
}

TEST(SoftmaxWithCrossEntropyTest, LargeLogitsDoNotOverflow) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(kLossOp,
                                            {{"Logits", {Floats({1, 2}, {3e38f, -3e38f})}},
                                             {"Label", {Labels({1, 1}, {1})}}},
                                            {}, kOutputs));
  EXPECT_NEAR(Values<float>(out["Loss"][0])[0], 64, 1e-4) << "differences end at -64";
}

TEST(SoftmaxWithCrossEntropyTest, RowsOfAnyLengthAreThoseOfDoublePrecision) {
  for (const int64_t classes : {1, 3, 16, 31, 255, 500}) {
    std::vector<float> logits;
    for (int64_t i = 0; i < 3 * classes; ++i) logits.push_back(i * 37 % 101 / 10.0f);
    logits[0] = 200;
    const Tensor label = Labels({3, 1}, {classes - 1, 0, classes / 2});
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto out, RunOp(kLossOp, {{"Logits", {Floats({3, classes}, logits)}}, {"Label", {label}}},
                        {}, kOutputs));
    const std::vector<double> doubles(logits.begin(), logits.end());
    WEFT_ASSERT_OK_AND_ASSIGN(
        auto exact,
        RunOp(kLossOp,
              {{"Logits", {MakeTensor<double>({3, classes}, doubles)}}, {"Label", {label}}}, {},
              kOutputs));
    EXPECT_THAT(Values<float>(out["Softmax"][0]),
                Pointwise(FloatNear(1e-6), Values<double>(exact["Softmax"][0])));
    EXPECT_THAT(Values<float>(out["Loss"][0]),
                Pointwise(FloatNear(1e-4), Values<double>(exact["Loss"][0])));
  }
}

TEST(SoftmaxWithCrossEntropyTest, ClassesMayBeAnInnerDimension) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp(kLossOp,
                                            {{"Logits", {Floats({1, 2, 2}, {0, 9, 0, 9})}},
                                             {"Label", {Labels({1, 1, 2}, {0, 1})}}},
                                            {{"axis", 1}}, kOutputs));
  EXPECT_THAT(Values<float>(out["Softmax"][0]), ElementsAre(0.5, 0.5, 0.5, 0.5));
  EXPECT_THAT(out["Loss"][0].dims(), ElementsAre(1, 1, 2));
}

TEST(SoftmaxWithCrossEntropyTest, IgnoredRowsHaveNoLossAndNoGradient) {
  const Tensor label = MakeTensor<int32_t>({2, 1}, {7, 0});
  const AttrValues attrs = {{"ignore_index", 7}};
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp(kLossOp, {{"Logits", {Floats({2, 2}, {1, 2, 3, 3})}}, {"Label", {label}}},
                      attrs, kOutputs));
  EXPECT_EQ(Values<float>(out["Loss"][0])[0], 0);
  WEFT_ASSERT_OK_AND_ASSIGN(auto grad, RunOp("softmax_with_cross_entropy_grad",
                                             {{"Softmax", out["Softmax"]},
                                              {"Label", {label}},
                                              {"Loss@GRAD", {Floats({2, 1}, {1, 1})}}},
                                             attrs, {{"Logits@GRAD", 1}}));
  EXPECT_THAT(Values<float>(grad["Logits@GRAD"][0]), ElementsAre(0, 0, -0.5, 0.5));
}

TEST(SoftmaxWithCrossEntropyTest, LabelOutOfRangeIsNamedWithItsPosition) {
  for (const int64_t bad : {2, -1}) {
    EXPECT_THAT(
        RunOp(kLossOp,
              {{"Logits", {Floats({2, 2}, {1, 2, 3, 4})}}, {"Label", {Labels({2, 1}, {0, bad})}}},
              {}, kOutputs),
        IsInvalidArgument(absl::StrCat("input Label: ", bad, " at position 1")));
  }
}

TEST(SoftmaxWithCrossEntropyTest, WrongNumberOfLabelsIsAnError) {
  EXPECT_THAT(
      RunOp(kLossOp, {{"Logits", {Floats({2, 2}, {1, 2, 3, 4})}}, {"Label", {Labels({1}, {0})}}},
            {}, kOutputs),
      IsInvalidArgument("input Label: expected class numbers of dimensions [2, 1]"));
}

TEST(SoftmaxWithCrossEntropyTest, SoftmaxMayTakeThePlaceOfLogitsAndTheGradientThatOfSoftmax) {
  Tensor logits = Floats({1, 2}, {4, 4}), label = Labels({1, 1}, {0}), loss;
  WEFT_ASSERT_OK(RunOpOn(kLossOp, {{"Logits", {&logits}}, {"Label", {&label}}}, {},
                         {{"Softmax", {&logits}}, {"Loss", {&loss}}}));
  EXPECT_THAT(Values<float>(logits), ElementsAre(0.5, 0.5));

  Tensor dloss = Floats({1, 1}, {2});
  WEFT_ASSERT_OK(RunOpOn("softmax_with_cross_entropy_grad",
                         {{"Softmax", {&logits}}, {"Label", {&label}}, {"Loss@GRAD", {&dloss}}}, {},
                         {{"Logits@GRAD", {&logits}}}));
  EXPECT_THAT(Values<float>(logits), ElementsAre(-1, 1));
}

TEST(SoftmaxWithCrossEntropyTest, EmptyBatchGivesEmptyOutputs) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp(kLossOp, {{"Logits", {Floats({0, 3}, {})}}, {"Label", {Labels({0, 1}, {})}}},
                      {}, kOutputs));
  EXPECT_EQ(out["Loss"][0].size(), 0);
}

TEST(SoftmaxWithCrossEntropyTest, WithoutClassesNoLabelFits) {
  EXPECT_THAT(RunOp(kLossOp, {{"Logits", {Floats({1, 0}, {})}}, {"Label", {Labels({1, 1}, {0})}}},
                    {}, kOutputs),
              IsInvalidArgument("is not in [0, 0)"));
}

}  // namespace
}  // namespace weft::testing
