#include "ops/analysis/core/block_periods.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

void Constant(ProgramBuilder* p, const std::string& name, int value) {
  p->Op("fill_constant", {}, {{"Out", {name}}}).FloatAttr("value", static_cast<float>(value));
}

// Counts steps and computes `due`: step % k == phase.
ProgramBuilder DueEvery(int k, float increment = 1, int phase = 0) {
  ProgramBuilder p;
  p.Var("step").last_var().set_persistable(true);
  p.Op("increment", {{"X", {"step"}}}, {{"Out", {"step"}}}).FloatAttr("step", increment);
  Constant(&p, "k", k);
  Constant(&p, "phase", phase);
  p.Op("elementwise_mod", {{"X", {"step"}}, {"Y", {"k"}}}, {{"Out", {"rest"}}});
  p.Op("equal", {{"X", {"rest"}}, {"Y", {"phase"}}}, {{"Out", {"due"}}});
  return p;
}

ProgramBuilder& RunIf(const std::string& condition, ProgramBuilder* p) {
  p->Op("conditional_block", {{"Cond", {condition}}}, {}).BlockAttr("sub_block", 1);
  return p->NewBlock(0).Op("scale", {{"X", {"a"}}}, {{"Out", {"a"}}});
}

TEST(BlockPeriods, ConditionThatCountsStepsIsSeen) {
  ProgramBuilder p = DueEvery(4);
  EXPECT_THAT(BlockPeriods(RunIf("due", &p).Build()), ElementsAre(1, 4));
}

TEST(BlockPeriods, StepsMayLeaveAnyRemainder) {
  for (int phase : {1, 3}) {
    ProgramBuilder p = DueEvery(4, /*increment=*/1, phase);
    EXPECT_THAT(BlockPeriods(RunIf("due", &p).Build()), ElementsAre(1, 4));
  }
  for (int phase : {-1, 4}) {
    ProgramBuilder never = DueEvery(4, /*increment=*/1, phase);
    EXPECT_THAT(BlockPeriods(RunIf("due", &never).Build()), ElementsAre(1, 0));
  }
}

TEST(BlockPeriods, BeginningLaterDoesNotChangeThePeriod) {
  ProgramBuilder p = DueEvery(4);
  Constant(&p, "begin", 100);
  p.Op("greater_equal", {{"X", {"step"}}, {"Y", {"begin"}}}, {{"Out", {"begun"}}});
  p.Op("logical_and", {{"X", {"due"}}, {"Y", {"begun"}}}, {{"Out", {"both"}}});
  EXPECT_THAT(BlockPeriods(RunIf("both", &p).Build()), ElementsAre(1, 4));
}

TEST(BlockPeriods, OtherConditionsAreNotSeen) {
  ProgramBuilder unwritten;
  EXPECT_THAT(BlockPeriods(RunIf("flag", &unwritten).Build()), ElementsAre(1, 0));
  ProgramBuilder other_counter = DueEvery(4, /*increment=*/2);
  EXPECT_THAT(BlockPeriods(RunIf("due", &other_counter).Build()), ElementsAre(1, 0));
  ProgramBuilder joined = DueEvery(4);
  joined.Op("logical_and", {{"X", {"due"}}, {"Y", {"flag"}}}, {{"Out", {"both"}}});
  EXPECT_THAT(BlockPeriods(RunIf("both", &joined).Build()), ElementsAre(1, 0));
  ProgramBuilder by_zero = DueEvery(0);
  EXPECT_THAT(BlockPeriods(RunIf("due", &by_zero).Build()), ElementsAre(1, 0));
}

TEST(BlockPeriods, ConditionIsTheLastWriteBeforeIt) {
  ProgramBuilder p = DueEvery(4);
  p.Op("logical_not", {{"X", {"due"}}}, {{"Out", {"due"}}});
  EXPECT_THAT(BlockPeriods(RunIf("due", &p).Build()), ElementsAre(1, 0));
}

TEST(BlockPeriods, BlockThatTwoOpsRunAndBlockInABlockAreNotSeen) {
  ProgramBuilder p = DueEvery(4);
  p.Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 1);
  p.Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0).Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 2);
  p.NewBlock(1).Op("scale", {{"X", {"a"}}}, {{"Out", {"a"}}});
  EXPECT_THAT(BlockPeriods(p.Build()), ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace weft::testing
