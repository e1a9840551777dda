#include <vector>

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

TEST(RegionsTest, EveryRegionBecomesBinsOfAllChannels) {
  EXPECT_THAT(InferenceCase("roi_pool")
                  .In("X", {"fp32[2, 16, 20, 30]"})
                  .In("ROIs", {"fp32[-1, 4]"})
                  .In("RoisNum", {"int32[2]"})
                  .Out("Out")
                  .Out("Argmax")
                  .Attr("pooled_height", 3)
                  .Attr("pooled_width", 5)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Argmax", "int64[-1, 16, 3, 5]"),
                                       Pair("Out", "fp32[-1, 16, 3, 5]"))));
}

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
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Offset (Offset_0): expected dimensions [2, 36, 6, 6]")));
}

TEST(YoloTest, ChannelsAreThoseOfTheAnchors) {
  const auto with_channels = [](const char* x) {
    return InferenceCase("yolov3_loss")
        .In("X", {x})
        .In("GTBox", {"fp32[-1, 5, 4]"})
        .In("GTLabel", {"int32[-1, 5]"})
        .Out("Loss")
        .Out("ObjectnessMask")
        .Attr("anchors", std::vector<int32_t>{1, 2, 3, 4, 5, 6})
        .Attr("anchor_mask", std::vector<int32_t>{0, 2})
        .Attr("class_num", 3)
        .Infer();
  };
  EXPECT_THAT(with_channels("fp32[-1, 16, 4, 4]"),
              IsOkAndHolds(ElementsAre(Pair("Loss", "fp32[-1]"),
                                       Pair("ObjectnessMask", "fp32[-1, 2, 4, 4]"))));
  EXPECT_THAT(with_channels("fp32[-1, 24, 4, 4]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[-1, 16, -1, -1]")));
}

}  // namespace
}  // namespace weft
