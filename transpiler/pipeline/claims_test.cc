#include "transpiler/pipeline/claims.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(AveragingSchedule, IsDescribedWithItsFirstStepWhereThatIsNotTheFirstOfAll) {
  EXPECT_EQ(ToString(AveragingSchedule{}), "every 1 step");
  EXPECT_EQ(ToString(AveragingSchedule{4, 1}), "every 4 steps");
  EXPECT_EQ(ToString(AveragingSchedule{4, 8}), "every 4 steps from step 8 on");
  EXPECT_EQ(ToString(AveragingSchedule{4, 1, 9}), "every 4 steps, and in every step before step 9");
}

TEST(Claims, RanksCommunicateWhereGradientsOrParametersAreExchanged) {
  Claims claims;
  EXPECT_FALSE(claims.Communicate());
  claims.computation = Claims::Computation::kChanged;
  EXPECT_FALSE(claims.Communicate());
  claims.averaging = AveragingSchedule{4, 1};
  EXPECT_TRUE(claims.Communicate());
  claims = Claims();
  claims.gradients = Claims::Gradients::kSummed;
  EXPECT_TRUE(claims.Communicate());
}

}  // namespace
}  // namespace weft
