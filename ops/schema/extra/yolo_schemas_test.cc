#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(YoloTest, ChannelsAreThoseOfTheAnchors) {
  const auto with_channels = [](const char* x) {
    return Infer(
        absl::StrCat("yolov3_loss(X: ", x,
                     ", GTBox: fp32[-1, 5, 4], GTLabel: int32[-1, 5]) -> Loss, ObjectnessMask"),
        {{"anchors", Ints{1, 2, 3, 4, 5, 6}}, {"anchor_mask", Ints{0, 2}}, {"class_num", 3}});
  };
  EXPECT_THAT(with_channels("fp32[-1, 16, 4, 4]"),
              IsOkAndHolds("Loss: fp32[-1], ObjectnessMask: fp32[-1, 2, 4, 4]"));
  EXPECT_THAT(with_channels("fp32[-1, 24, 4, 4]"), IsInvalidArgument("[-1, 16, -1, -1]"));
}

}  // namespace
}  // namespace weft::testing
