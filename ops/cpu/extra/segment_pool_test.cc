#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(SegmentPoolTest, NumbersThatDescendOrAreNegativeAreErrors) {
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{1, 0}, {-1, 0}}) {
    EXPECT_THAT(RunOp("segment_pool",
                      {{"X", {Floats({2, 1}, {1, 2})}}, {"SegmentIds", {MakeTensor({2}, ids)}}}, {},
                      {{"Out", 1}}),
                IsInvalidArgument("input SegmentIds"));
  }
}

}  // namespace
}  // namespace weft::testing
