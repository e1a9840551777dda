#include "tools/job/stop_count.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

StopCount::Time At(int seconds) { return StopCount::Time() + std::chrono::seconds(1000 + seconds); }

TEST(StopCountTest, EachSignalIsAStop) {
  StopCount stops;
  EXPECT_EQ(stops.num(), 0);
  EXPECT_TRUE(stops.AddOwn(At(0)));
  EXPECT_TRUE(stops.AddOwn(At(0)));
  EXPECT_EQ(stops.num(), 2);
}

TEST(StopCountTest, ASignalSoonAfterAStopFromElsewhereIsTheSame) {
  StopCount stops;
  stops.AddOther(At(0));
  EXPECT_FALSE(stops.AddOwn(At(4)));
  EXPECT_EQ(stops.num(), 1);
  EXPECT_TRUE(stops.AddOwn(At(4)));  // the second one
  EXPECT_EQ(stops.num(), 2);
}

TEST(StopCountTest, ALaterSignalIsAnotherStop) {
  StopCount stops;
  stops.AddOther(At(0));
  EXPECT_TRUE(stops.AddOwn(At(5)));
  EXPECT_EQ(stops.num(), 2);
  stops.AddOther(At(6));
  EXPECT_FALSE(stops.AddOwn(At(7)));  // the number of own ones follows
  EXPECT_EQ(stops.num(), 3);
}

}  // namespace
}  // namespace weft
