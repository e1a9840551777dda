#include "proto/host_schedules.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(HostSchedules, TheSameOptionsAreTheSameText) {
  const std::string text = CanonicalSchedule(
      "linear_warmup{warmup_steps=5,start_lr=0,end_lr=0.1},piecewise{boundaries=3:6,values=1:2:3}");
  EXPECT_EQ(CanonicalSchedule("linear_warmup{end_lr=1e-1,start_lr=0.0,warmup_steps=5},"
                              "piecewise{values=\"1,2.0,3\",boundaries=3:6}"),
            text);
  EXPECT_NE(CanonicalSchedule("linear_warmup{end_lr=0.2,start_lr=0.0,warmup_steps=5},"
                              "piecewise{values=1:2:3,boundaries=3:6}"),
            text);
  EXPECT_EQ(CanonicalSchedule("no schedule {"), "no schedule {");
}

}  // namespace
}  // namespace weft
