#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(ActivationTest, ResultIsLikeTheInput) {
  EXPECT_THAT(Infer("gelu(X: fp16[-1, 3]) -> Out"), IsOkAndHolds("Out: fp16[-1, 3]"));
}

TEST(ActivationTest, GradientHasTheTypeOfItsInput) {
  EXPECT_THAT(Infer("relu_grad(Out: fp32[-1, 3], Out@GRAD: fp32[-1, 3]) -> X@GRAD"),
              IsOkAndHolds("X@GRAD: fp32[-1, 3]"));
  EXPECT_THAT(Infer("square_grad(X: fp32[2], Out@GRAD: fp32[2]) -> X@GRAD"),
              IsOkAndHolds("X@GRAD: fp32[2]"));
}

TEST(ActivationTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(Infer("tanh_grad(Out: fp32[2], Out@GRAD: fp32[3]) -> X@GRAD"),
              IsInvalidArgument(
                  "input Out@GRAD (Out@GRAD_0): expected dimensions [2] of Out, found fp32[3]"));
}

}  // namespace
}  // namespace weft::testing
