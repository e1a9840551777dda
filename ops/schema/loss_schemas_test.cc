#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(SoftmaxWithCrossEntropyTest, LossHasOneElementForEachExample) {
  EXPECT_THAT(InferenceCase("softmax_with_cross_entropy")
                  .In("Label", {"int64[-1, 16, 1]"})
                  .In("Logits", {"fp32[-1, 16, 500]"})
                  .Out("Loss")
                  .Out("Softmax")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Loss", "fp32[-1, 16, 1]"),
                                       Pair("Softmax", "fp32[-1, 16, 500]"))));
}

TEST(SoftmaxWithCrossEntropyTest, ClassesMayBeAlongAnotherAxis) {
  EXPECT_THAT(
      InferenceCase("softmax_with_cross_entropy")
          .In("Label", {"int64[8, 1, 5]"})
          .In("Logits", {"fp32[8, 10, 5]"})
          .Out("Loss")
          .Out("Softmax")
          .Attr("axis", 1)
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Loss", "fp32[8, 1, 5]"), Pair("Softmax", "fp32[8, 10, 5]"))));
}

TEST(SoftmaxWithCrossEntropyTest, SoftLabelsAreProbabilities) {
  EXPECT_THAT(
      InferenceCase("softmax_with_cross_entropy")
          .In("Label", {"fp32[8, 10]"})
          .In("Logits", {"fp32[8, 10]"})
          .Out("Loss")
          .Out("Softmax")
          .Attr("soft_label", true)
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Loss", "fp32[8, 1]"), Pair("Softmax", "fp32[8, 10]"))));
  EXPECT_THAT(
      InferenceCase("softmax_with_cross_entropy")
          .In("Label", {"int64[8, 1]"})
          .In("Logits", {"fp32[8, 10]"})
          .Out("Loss")
          .Out("Softmax")
          .Attr("soft_label", true)
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "input Label (Label_0): expected fp32[8, 10] as the logits, found int64[8, 1]")));
}

TEST(SoftmaxWithCrossEntropyTest, LabelsMustBeClassNumbersOfThatShape) {
  EXPECT_THAT(InferenceCase("softmax_with_cross_entropy")
                  .In("Label", {"fp32[8, 1]"})
                  .In("Logits", {"fp32[8, 10]"})
                  .Out("Loss")
                  .Out("Softmax")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (softmax_with_cross_entropy) input Label (Label_0): "
                                 "expected class numbers of dimensions [8, 1], found fp32[8, 1]")));
  EXPECT_THAT(InferenceCase("softmax_with_cross_entropy")
                  .In("Label", {"int64[7, 1]"})
                  .In("Logits", {"fp32[8, 10]"})
                  .Out("Loss")
                  .Out("Softmax")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found int64[7, 1]")));
}

TEST(SoftmaxWithCrossEntropyTest, AxisThatTheLogitsDoNotHaveIsAnError) {
  EXPECT_THAT(InferenceCase("softmax_with_cross_entropy")
                  .In("Label", {"int64[8, 1]"})
                  .In("Logits", {"fp32[8, 10]"})
                  .Out("Loss")
                  .Out("Softmax")
                  .Attr("axis", 2)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute axis: expected an axis of 2 dimensions, found 2")));
}

TEST(SoftmaxWithCrossEntropyTest, GradientIsLikeTheLogits) {
  EXPECT_THAT(InferenceCase("softmax_with_cross_entropy_grad")
                  .In("Label", {"int64[8, 1]"})
                  .In("Loss@GRAD", {"fp32[8, 1]"})
                  .In("Softmax", {"fp32[8, 10]"})
                  .Out("Logits@GRAD")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Logits@GRAD", "fp32[8, 10]"))));
}

TEST(SoftmaxWithCrossEntropyTest, GradientOfTheLossOfAnotherShapeIsAnError) {
  EXPECT_THAT(InferenceCase("softmax_with_cross_entropy_grad")
                  .In("Label", {"int64[8, 1]"})
                  .In("Loss@GRAD", {"fp32[8, 2]"})
                  .In("Softmax", {"fp32[8, 10]"})
                  .Out("Logits@GRAD")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Loss@GRAD (Loss@GRAD_0): expected dimensions [8, 1] of the "
                                 "loss, found fp32[8, 2]")));
}

TEST(KlDivTest, TargetsAreProbabilities) {
  EXPECT_THAT(InferenceCase("kldiv_loss")
                  .In("Target", {"fp32[8, 2]"})
                  .In("X", {"fp32[8, 2]"})
                  .Attr("log_target", true)
                  .Out("Loss")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("log_target")));
}

TEST(SigmoidCrossEntropyTest, LossIsLikeTheLogits) {
  EXPECT_THAT(InferenceCase("sigmoid_cross_entropy_with_logits")
                  .In("Label", {"fp32[-1, 1]"})
                  .In("X", {"fp32[-1, 1]"})
                  .Out("Out")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 1]"))));
}

TEST(SigmoidCrossEntropyTest, LabelsMustBeLikeTheLogits) {
  EXPECT_THAT(
      InferenceCase("sigmoid_cross_entropy_with_logits")
          .In("Label", {"int64[8, 1]"})
          .In("X", {"fp32[8, 1]"})
          .Out("Out")
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input Label (Label_0): expected fp32 as X is, found int64[8, 1]")));
}

}  // namespace
}  // namespace weft
