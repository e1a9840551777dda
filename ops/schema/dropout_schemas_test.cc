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

TEST(DropoutTest, MaskIsBytes) {
  EXPECT_THAT(InferenceCase("dropout").In("X", {"fp16[-1, 3]"}).Out("Mask").Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Mask", "uint8[-1, 3]"), Pair("Out", "fp16[-1, 3]"))));
}

TEST(DropoutTest, GradientNeedsAMaskOfItsShape) {
  EXPECT_THAT(
      InferenceCase("dropout_grad")
          .In("Mask", {"uint8[4]"})
          .In("Out@GRAD", {"fp32[3]"})
          .Out("X@GRAD")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("input Mask (Mask_0): expected dimensions [3] of Out@GRAD, found uint8[4]")));
}

}  // namespace
}  // namespace weft
