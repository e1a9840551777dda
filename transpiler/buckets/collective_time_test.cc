#include "transpiler/buckets/collective_time.h"

#include <limits>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(CollectiveTime, AlphaBetaIsLatencyPlusBytesOverBandwidth) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(1e-3, 4e9));
  EXPECT_DOUBLE_EQ(time.Seconds(0), 1e-3);
  EXPECT_DOUBLE_EQ(time.Seconds(4000000), 2e-3);
  EXPECT_DOUBLE_EQ(time.LeastSeconds(4000000), 2e-3);
}

TEST(CollectiveTime, IsLinearBetweenPointsAndBeyondThem) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time,
                            CollectiveTime::FromPoints({{100, 2}, {200, 3}, {300, 7}}));
  EXPECT_DOUBLE_EQ(time.Seconds(0), 2);
  EXPECT_DOUBLE_EQ(time.Seconds(100), 2);
  EXPECT_DOUBLE_EQ(time.Seconds(150), 2.5);
  EXPECT_DOUBLE_EQ(time.Seconds(300), 7);
  EXPECT_DOUBLE_EQ(time.Seconds(400), 11);
}

TEST(CollectiveTime, NeverFalls) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time,
                            CollectiveTime::FromPoints({{0, 5}, {10, 3}, {20, 6}}));
  EXPECT_DOUBLE_EQ(time.Seconds(10), 5);
  EXPECT_DOUBLE_EQ(time.Seconds(20), 6);
}

TEST(CollectiveTime, LeastSecondsSplitsWhereThatIsFaster) {
  // 100 bytes in 1 s, 200 in 10 s: 200 in two parts.
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time,
                            CollectiveTime::FromPoints({{0, 0.5}, {100, 1}, {200, 10}}));
  EXPECT_DOUBLE_EQ(time.LeastSeconds(200), 2);
  EXPECT_DOUBLE_EQ(time.LeastSeconds(1), 0.505);
  EXPECT_DOUBLE_EQ(time.LeastSeconds(0), 0.5);
}

TEST(CollectiveTime, RefusesWhatIsNoTable) {
  EXPECT_THAT(CollectiveTime::FromPoints({{0, 1}}),
              StatusIs(kInvalid, "expected two sizes or more, found 1"));
  EXPECT_THAT(CollectiveTime::FromPoints({{4, 1}, {4, 2}}),
              StatusIs(kInvalid, HasSubstr("point 1: expected sizes >= 0 in ascending order")));
  EXPECT_THAT(CollectiveTime::FromPoints({{-4, 1}, {4, 2}}),
              StatusIs(kInvalid, HasSubstr("expected")));
  EXPECT_THAT(CollectiveTime::FromPoints({{0, -1}, {4, 2}}),
              StatusIs(kInvalid, HasSubstr("expected a time from 0")));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(CollectiveTime::FromPoints({{0, nan}, {4, 2}}),
              StatusIs(kInvalid, HasSubstr("expected")));
  EXPECT_THAT(CollectiveTime::AlphaBeta(-1, 1), StatusIs(kInvalid, HasSubstr("expected")));
  EXPECT_THAT(CollectiveTime::AlphaBeta(0, 0), StatusIs(kInvalid, HasSubstr("expected")));
  EXPECT_THAT(CollectiveTime::AlphaBeta(0, nan), StatusIs(kInvalid, HasSubstr("expected")));
}

}  // namespace
}  // namespace weft::testing
