#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;

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

}  // namespace
}  // namespace weft
