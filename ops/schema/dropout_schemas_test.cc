#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(DropoutTest, MaskIsBytes) {
  EXPECT_THAT(Infer("dropout(X: fp16[-1, 3]) -> Mask, Out"),
              IsOkAndHolds("Mask: uint8[-1, 3], Out: fp16[-1, 3]"));
}

TEST(DropoutTest, GradientNeedsAMaskOfItsShape) {
  EXPECT_THAT(Infer("dropout_grad(Mask: uint8[4], Out@GRAD: fp32[3]) -> X@GRAD"),
              IsInvalidArgument(
                  "input Mask (Mask_0): expected dimensions [3] of Out@GRAD, found uint8[4]"));
}

}  // namespace
}  // namespace weft::testing
