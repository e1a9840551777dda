#include "executor/step/step_lives.h"

#include <utility>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

using Kind = Plan::Instruction::Kind;

MATCHER_P2(Runs, first, last, "") { return arg.first == first && arg.last == last; }
MATCHER(IsEmpty, "") { return arg.empty(); }

// Streams 0 (compute), 1 and 2.
Plan MakePlan(std::vector<Plan::Instruction> instructions, int num_events) {
  Plan plan;
  plan.instructions = std::move(instructions);
  plan.stream_names = {"compute", "ring 0", "ring 1"};
  plan.num_events = num_events;
  return plan;
}

std::vector<Life> LivesOf(const Plan& plan) {
  return LivesOfOps(plan, std::vector<bool>(plan.instructions.size(), false));
}

TEST(StepLivesTest, OpsOfTheComputeStreamRunOneAfterTheOther) {
  EXPECT_THAT(LivesOf(MakePlan({{Kind::kRunOp, 0, 0}, {Kind::kRunOp, 0, 1}}, 0)),
              ElementsAre(Runs(0, 0), Runs(1, 1)));
}

TEST(StepLivesTest, AnOpOfARingRunsBetweenTheWaits) {
  const Plan plan = MakePlan({{Kind::kRunOp, 0, 0},
                              {Kind::kRecord, 0, 0},
                              {Kind::kWait, 1, 0},
                              {Kind::kRunOp, 0, 1},
                              {Kind::kRunOp, 1, 2},
                              {Kind::kRecord, 1, 1},
                              {Kind::kRunOp, 0, 3},
                              {Kind::kWait, 0, 1},
                              {Kind::kRunOp, 0, 4}},
                             2);
  // From the record that the ring waits for to the wait of the compute stream.
  EXPECT_THAT(LivesOf(plan), ElementsAre(Runs(0, 0), IsEmpty(), IsEmpty(), Runs(3, 3), Runs(1, 7),
                                         IsEmpty(), Runs(6, 6), IsEmpty(), Runs(8, 8)));
}

TEST(StepLivesTest, AnotherStreamIsTheTimeline) {
  const Plan plan = MakePlan({{Kind::kRunOp, 1, 0},
                              {Kind::kRecord, 1, 0},
                              {Kind::kRunOp, 1, 1},
                              {Kind::kWait, 0, 0},
                              {Kind::kRunOp, 0, 2},
                              {Kind::kRecord, 0, 1},
                              {Kind::kWait, 1, 1},
                              {Kind::kRunOp, 1, 3}},
                             2);
  const std::vector<bool> in_block(plan.instructions.size(), false);
  // The compute stream waits for op 0, not for op 1.
  EXPECT_THAT(LivesOfOps(plan, in_block, /*timeline=*/1),
              ElementsAre(Runs(0, 0), IsEmpty(), Runs(2, 2), IsEmpty(), Runs(1, 6), IsEmpty(),
                          IsEmpty(), Runs(7, 7)));
}

TEST(StepLivesTest, AnOpThatNothingWaitsForRunsAtAnyTime) {
  EXPECT_THAT(
      LivesOf(MakePlan({{Kind::kRunOp, 0, 0}, {Kind::kRunOp, 1, 1}, {Kind::kRunOp, 0, 2}}, 0)),
      ElementsAre(Runs(0, 0), Runs(0, 3), Runs(2, 2)));
}

TEST(StepLivesTest, AnEarlierRecordDoesNotCoverALaterOp) {
  const Plan plan = MakePlan({{Kind::kRunOp, 1, 0},
                              {Kind::kRecord, 1, 0},
                              {Kind::kRunOp, 1, 1},
                              {Kind::kWait, 0, 0},
                              {Kind::kRunOp, 0, 2}},
                             1);
  EXPECT_THAT(LivesOf(plan), ElementsAre(Runs(0, 3), IsEmpty(), Runs(0, 5), IsEmpty(), Runs(4, 4)));
}

TEST(StepLivesTest, WaitsReachThroughAnotherRing) {
  const Plan plan = MakePlan({{Kind::kRunOp, 1, 0},
                              {Kind::kRecord, 1, 0},
                              {Kind::kWait, 2, 0},
                              {Kind::kRunOp, 2, 1},
                              {Kind::kRecord, 2, 1},
                              {Kind::kWait, 0, 1}},
                             2);
  EXPECT_THAT(LivesOf(plan),
              ElementsAre(Runs(0, 5), IsEmpty(), IsEmpty(), Runs(0, 5), IsEmpty(), IsEmpty()));
}

TEST(StepLivesTest, TheHostWaitsForAllStreams) {
  const Plan plan = MakePlan({{Kind::kRunOp, 1, 0},
                              {Kind::kSynchronize, 1, -1},
                              {Kind::kRunOp, 0, 1},
                              {Kind::kSynchronize, 0, -1},
                              {Kind::kRunOp, 2, 2}},
                             0);
  EXPECT_THAT(LivesOf(plan), ElementsAre(Runs(0, 1), IsEmpty(), Runs(2, 2), IsEmpty(), Runs(3, 5)));
}

TEST(StepLivesTest, AWaitThatABranchMaySkipDoesNotCount) {
  const Plan plan = MakePlan({{Kind::kRunOp, 1, 0},
                              {Kind::kRecord, 1, 0},
                              {Kind::kBranch, 0, 0},
                              {Kind::kWait, 0, 0},
                              {Kind::kRunOp, 0, 1}},
                             1);
  EXPECT_THAT(LivesOfOps(plan, {false, false, false, true, false}),
              ElementsAre(Runs(0, 5), IsEmpty(), IsEmpty(), IsEmpty(), Runs(4, 4)));
}

}  // namespace
}  // namespace weft::testing
