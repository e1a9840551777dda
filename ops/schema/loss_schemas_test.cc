#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(SoftmaxWithCrossEntropyTest, LossHasOneElementForEachExample) {
  EXPECT_THAT(Infer("softmax_with_cross_entropy(Label: int64[-1, 16, 1], Logits: fp32[-1, 16, "
                    "500]) -> Loss, Softmax"),
              IsOkAndHolds("Loss: fp32[-1, 16, 1], Softmax: fp32[-1, 16, 500]"));
}

TEST(SoftmaxWithCrossEntropyTest, ClassesMayBeAlongAnotherAxis) {
  EXPECT_THAT(Infer("softmax_with_cross_entropy(Label: int64[8, 1, 5], Logits: fp32[8, 10, 5]) -> "
                    "Loss, Softmax",
                    {{"axis", 1}}),
              IsOkAndHolds("Loss: fp32[8, 1, 5], Softmax: fp32[8, 10, 5]"));
}

TEST(SoftmaxWithCrossEntropyTest, SoftLabelsAreProbabilities) {
  EXPECT_THAT(
      Infer("softmax_with_cross_entropy(Label: fp32[8, 10], Logits: fp32[8, 10]) -> Loss, Softmax",
            {{"soft_label", true}}),
      IsOkAndHolds("Loss: fp32[8, 1], Softmax: fp32[8, 10]"));
  EXPECT_THAT(
      Infer("softmax_with_cross_entropy(Label: int64[8, 1], Logits: fp32[8, 10]) -> Loss, Softmax",
            {{"soft_label", true}}),
      IsInvalidArgument(
          "input Label (Label_0): expected fp32[8, 10] as the logits, found int64[8, 1]"));
}

TEST(SoftmaxWithCrossEntropyTest, LabelsMustBeClassNumbersOfThatShape) {
  EXPECT_THAT(
      Infer("softmax_with_cross_entropy(Label: fp32[8, 1], Logits: fp32[8, 10]) -> Loss, Softmax"),
      IsInvalidArgument("op 0 (softmax_with_cross_entropy) input Label (Label_0): expected class "
                        "numbers of dimensions [8, 1], found fp32[8, 1]"));
  EXPECT_THAT(
      Infer("softmax_with_cross_entropy(Label: int64[7, 1], Logits: fp32[8, 10]) -> Loss, Softmax"),
      IsInvalidArgument("found int64[7, 1]"));
}

TEST(SoftmaxWithCrossEntropyTest, AxisThatTheLogitsDoNotHaveIsAnError) {
  EXPECT_THAT(
      Infer("softmax_with_cross_entropy(Label: int64[8, 1], Logits: fp32[8, 10]) -> Loss, Softmax",
            {{"axis", 2}}),
      IsInvalidArgument("attribute axis: expected an axis of 2 dimensions, found 2"));
}

TEST(SoftmaxWithCrossEntropyTest, GradientIsLikeTheLogits) {
  EXPECT_THAT(Infer("softmax_with_cross_entropy_grad(Label: int64[8, 1], Loss@GRAD: fp32[8, 1], "
                    "Softmax: fp32[8, 10]) -> Logits@GRAD"),
              IsOkAndHolds("Logits@GRAD: fp32[8, 10]"));
}

TEST(SoftmaxWithCrossEntropyTest, GradientOfTheLossOfAnotherShapeIsAnError) {
  EXPECT_THAT(Infer("softmax_with_cross_entropy_grad(Label: int64[8, 1], Loss@GRAD: fp32[8, 2], "
                    "Softmax: fp32[8, 10]) -> Logits@GRAD"),
              IsInvalidArgument("input Loss@GRAD (Loss@GRAD_0): expected dimensions [8, 1] of the "
                                "loss, found fp32[8, 2]"));
}

TEST(KlDivTest, TargetsAreProbabilities) {
  EXPECT_THAT(
      Infer("kldiv_loss(Target: fp32[8, 2], X: fp32[8, 2]) -> Loss", {{"log_target", true}}),
      IsInvalidArgument("log_target"));
}

TEST(SigmoidCrossEntropyTest, LossIsLikeTheLogits) {
  EXPECT_THAT(Infer("sigmoid_cross_entropy_with_logits(Label: fp32[-1, 1], X: fp32[-1, 1]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 1]"));
}

TEST(SigmoidCrossEntropyTest, LabelsMustBeLikeTheLogits) {
  EXPECT_THAT(Infer("sigmoid_cross_entropy_with_logits(Label: int64[8, 1], X: fp32[8, 1]) -> Out"),
              IsInvalidArgument("input Label (Label_0): expected fp32 as X is, found int64[8, 1]"));
}

}  // namespace
}  // namespace weft::testing
