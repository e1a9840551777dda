#include "transpiler/buckets/timeline.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Timeline, CollectivesOfARingWaitForEachOther) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(1, 1));
  const auto runs = Schedule({{1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {0, 9, 0}}, time);
  ASSERT_EQ(runs.size(), 4);
  EXPECT_EQ(runs[0].end, 2);
  EXPECT_EQ(runs[1].begin, 2);
  EXPECT_EQ(runs[1].end, 4);
  EXPECT_EQ(runs[2].begin, 1);
  EXPECT_EQ(runs[3].begin, 9);
  EXPECT_EQ(runs[3].end, 10);
}

TEST(Timeline, ExposedIsWhatNoComputationCovers) {
  EXPECT_EQ(ExposedSeconds({{0, 10}}, {}), 10);
  EXPECT_EQ(ExposedSeconds({{0, 10}}, {{0, 10}}), 0);
  EXPECT_EQ(ExposedSeconds({{0, 10}}, {{2, 4}, {3, 5}, {20, 30}}), 7);
  EXPECT_EQ(ExposedSeconds({}, {{2, 4}}), 0);
}

// A sum over collectives would count what two rings do at the same time twice.
TEST(Timeline, CommunicationOfTwoRingsCountsOnce) {
  EXPECT_EQ(ExposedSeconds({{0, 10}, {5, 12}, {30, 31}}, {{0, 6}, {7, 8}}), 1 + 4 + 1);
}

TEST(Timeline, OneComputationCoversSeveralCollectives) {
  EXPECT_EQ(ExposedSeconds({{0, 2}, {3, 5}, {6, 9}}, {{1, 7}}), 1 + 2);
}

}  // namespace
}  // namespace weft
