#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(DeformableConvTest, OffsetsAndMaskAreForEveryElementOfTheWindow) {
  const auto with_offset = [](const char* offset) {
    return Infer(
        absl::StrCat("deformable_conv(Input: fp32[2, 4, 8, 8], Filter: fp32[6, 4, 3, 3], Offset: ",
                     offset, ", Mask: fp32[2, 18, 6, 6]) -> Output"),
        {{"deformable_groups", 2}});
  };
  EXPECT_THAT(with_offset("fp32[2, 36, 6, 6]"), IsOkAndHolds("Output: fp32[2, 6, 6, 6]"));
  EXPECT_THAT(with_offset("fp32[2, 18, 6, 6]"),
              IsInvalidArgument("input Offset (Offset_0): expected dimensions [2, 36, 6, 6]"));
}

}  // namespace
}  // namespace weft::testing
