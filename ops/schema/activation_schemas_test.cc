#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ActivationTest, ResultIsLikeTheInput) {
  EXPECT_THAT(Infer("gelu(X: fp16[-1, 3]) -> Out"), IsOkAndHolds("Out: fp16[-1, 3]"));
}

TEST(ActivationTest, GradientHasTheTypeOfItsInput) {
  EXPECT_THAT(InferenceCase("relu_grad")
                  .In("Out", {"fp32[-1, 3]"})
                  .In("Out@GRAD", {"fp32[-1, 3]"})
                  .Out("X@GRAD")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[-1, 3]"))));
  EXPECT_THAT(InferenceCase("square_grad")
                  .In("X", {"fp32[2]"})
                  .In("Out@GRAD", {"fp32[2]"})
                  .Out("X@GRAD")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[2]"))));
}

TEST(ActivationTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(InferenceCase("tanh_grad")
                  .In("Out", {"fp32[2]"})
                  .In("Out@GRAD", {"fp32[3]"})
                  .Out("X@GRAD")
                  .Infer(),
              IsInvalidArgument(
                  "input Out@GRAD (Out@GRAD_0): expected dimensions [2] of Out, found fp32[3]"));
}

}  // namespace
}  // namespace weft::testing
