#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(RegionsTest, EveryRegionBecomesBinsOfAllChannels) {
  EXPECT_THAT(
      Infer("roi_pool(X: fp32[2, 16, 20, 30], ROIs: fp32[-1, 4], RoisNum: int32[2]) -> Out, Argmax",
            {{"pooled_height", 3}, {"pooled_width", 5}}),
      IsOkAndHolds("Argmax: int64[-1, 16, 3, 5], Out: fp32[-1, 16, 3, 5]"));
}

}  // namespace
}  // namespace weft::testing
