#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(DeformableConvTest, OffsetsAndMaskAreForEveryElementOfTheWindow) {
  const auto with_offset = [](const char* offset) {
    return InferenceCase("deformable_conv")
        .In("Input", {"fp32[2, 4, 8, 8]"})
        .In("Filter", {"fp32[6, 4, 3, 3]"})
        .In("Offset", {offset})
        .In("Mask", {"fp32[2, 18, 6, 6]"})
        .Out("Output")
        .Attr("deformable_groups", 2)
        .Infer();
  };
  EXPECT_THAT(with_offset("fp32[2, 36, 6, 6]"),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[2, 6, 6, 6]"))));
  EXPECT_THAT(with_offset("fp32[2, 18, 6, 6]"),
              IsInvalidArgument("input Offset (Offset_0): expected dimensions [2, 36, 6, 6]"));
}

}  // namespace
}  // namespace weft::testing
