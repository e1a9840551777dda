#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

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
  EXPECT_THAT(with_channels("fp32[-1, 24, 4, 4]"), IsInvalidArgument("[-1, 16, -1, -1]"));
}

}  // namespace
}  // namespace weft::testing
