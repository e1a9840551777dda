#include "ops/schema/slice_range.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLowest = std::numeric_limits<int32_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();

// The elements of 0 to 4.
std::vector<int64_t> Taken(int64_t start, int64_t end, int64_t step) {
  const SliceRange range = TakeSlice(start, end, step, 5);
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < range.count; ++i) taken.push_back(range.begin + i * step);
  return taken;
}

// As Paddle 2.6.2 and 3.3.1 take them.
TEST(SliceRangeTest, NegativeStepsGoToTheLeft) {
  EXPECT_THAT(Taken(4, -5, -1), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(Taken(2, 0, -1), ElementsAre(2, 1));
  EXPECT_THAT(Taken(-1, -3, -2), ElementsAre(4));
  EXPECT_THAT(Taken(0, kHighest, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(Taken(3, 1, 1), IsEmpty());
}

TEST(SliceRangeTest, OpenEndsTakeTheFirstElement) {
  EXPECT_THAT(Taken(4, -1, -1), ElementsAre(4, 3, 2, 1, 0));              // 2.6.2
  EXPECT_THAT(Taken(kHighest, kLowest, -1), ElementsAre(4, 3, 2, 1, 0));  // 3.3.1
  EXPECT_THAT(Taken(2, kLowest, -1), ElementsAre(2, 1, 0));
  EXPECT_THAT(Taken(4, kLowest, -2), ElementsAre(4, 2, 0));
}

TEST(SliceRangeTest, EndsOfWhichVersionsTakeDifferentElementsAreAmbiguous) {
  EXPECT_TRUE(IsAmbiguousEnd(-6, 5));
  EXPECT_FALSE(IsAmbiguousEnd(-5, 5));
  EXPECT_FALSE(IsAmbiguousEnd(-1, 0));
  EXPECT_FALSE(IsAmbiguousEnd(kLowest, 5));
}

}  // namespace
}  // namespace weft
