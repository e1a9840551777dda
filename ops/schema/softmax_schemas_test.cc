#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(SoftmaxTest, KeepsTheType) {
  EXPECT_THAT(Infer("softmax(X: fp32[-1, 3]) -> Out"), IsOkAndHolds("Out: fp32[-1, 3]"));
}

TEST(SoftmaxTest, AxisThatXDoesNotHaveIsAnError) {
  EXPECT_THAT(Infer("softmax(X: fp32[-1, 3]) -> Out", {{"axis", -3}}),
              IsInvalidArgument(
                  "op 0 (softmax) attribute axis: expected an axis of 2 dimensions, found -3"));
  EXPECT_THAT(Infer("softmax_grad(Out: fp32[2], Out@GRAD: fp32[2]) -> X@GRAD", {{"axis", 1}}),
              IsInvalidArgument("attribute axis"));
}

}  // namespace
}  // namespace weft::testing
