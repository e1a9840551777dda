#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(InterpolateTest, ScaleAndChannelsLast) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("nearest_interp_v2", {{"X", {Floats({1, 1, 2, 2}, {1, 2, 3, 4})}}},
                      {{"align_corners", false},
                       {"data_layout", std::string("NHWC")},
                       {"scale", std::vector<float>{2}}},
                      {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(1, 2, 4, 2));
  EXPECT_THAT(Values<float>(out["Out"][0]),
              ElementsAre(1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4));
}

TEST(InterpolateTest, ASizeIsNeeded) {
  EXPECT_THAT(RunOp("bilinear_interp_v2", {{"X", {Floats({1, 1, 1, 1}, {1})}}}, {}, {{"Out", 1}}),
              IsInvalidArgument("attribute out_h"));
}

}  // namespace
}  // namespace weft::testing
