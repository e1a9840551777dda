#include "executor/rewrites/implied_waits.h"

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

using Instruction = Plan::Instruction;
using Kind = Plan::Instruction::Kind;

Instruction Op(int stream, int index) { return {Kind::kRunOp, stream, index}; }
Instruction Record(int stream, int event) { return {Kind::kRecord, stream, event}; }
Instruction Wait(int stream, int event) { return {Kind::kWait, stream, event}; }

Plan MakePlan(int num_streams, int num_events, std::vector<Instruction> instructions) {
  Plan plan;
  for (int s = 0; s < num_streams; ++s) plan.stream_names.push_back(absl::StrCat(s));
  plan.num_events = num_events;
  plan.instructions = std::move(instructions);
  return plan;
}

TEST(ImpliedWaitsTest, LastOfSeveralWaitsForAStreamIsKept) {
  // The compute stream waits for three gradients, one after the other.
  Plan plan = MakePlan(2, 3,
                       {Op(1, 0), Record(1, 0), Wait(0, 0), Op(1, 1), Record(1, 1), Wait(0, 1),
                        Op(1, 2), Record(1, 2), Wait(0, 2), Op(0, 3)});
  RemoveImpliedWaits(&plan);
  EXPECT_THAT(plan.instructions,
              ElementsAre(Op(1, 0), Op(1, 1), Op(1, 2), Record(1, 0), Wait(0, 0), Op(0, 3)));
  EXPECT_EQ(plan.num_events, 1);
}

TEST(ImpliedWaitsTest, WaitForWhatIsKnownIsRemoved) {
  // Stream 2 waits for 1, which has waited for 0.
  Plan plan =
      MakePlan(3, 4,
               {Op(0, 0), Record(0, 0), Wait(1, 0), Op(1, 1), Record(1, 1), Wait(2, 1), Op(2, 2),
                Record(0, 2), Wait(2, 2), Op(2, 3), Op(0, 4), Record(0, 3), Wait(2, 3), Op(2, 5)});
  RemoveImpliedWaits(&plan);
  EXPECT_THAT(plan.instructions,
              ElementsAre(Op(0, 0), Record(0, 0), Wait(1, 0), Op(1, 1), Record(1, 1), Wait(2, 1),
                          Op(2, 2), Op(2, 3), Op(0, 4), Record(0, 2), Wait(2, 2), Op(2, 5)));
}

TEST(ImpliedWaitsTest, NothingIsKnownAfterABlockBeginsOrEnds) {
  // The block of the branch (instructions 4 to 6) may be skipped.
  Plan plan = MakePlan(2, 3,
                       {Op(0, 0),
                        Record(0, 0),
                        Wait(1, 0),
                        {Kind::kBranch, 0, 0},
                        Record(0, 1),
                        Wait(1, 1),
                        Op(1, 1),
                        Record(0, 2),
                        Wait(1, 2),
                        Op(1, 2)});
  plan.branches.emplace_back();
  plan.branches[0].begin = 4;
  plan.branches[0].end = plan.branches[0].next = 7;
  const std::vector<Instruction> before = plan.instructions;
  RemoveImpliedWaits(&plan);
  EXPECT_EQ(plan.instructions, before);
}

TEST(ImpliedWaitsTest, BranchesMoveWithTheInstructions) {
  Plan plan = MakePlan(2, 1, {Record(0, 0), Wait(1, 0), {Kind::kBranch, 0, 0}, Op(0, 0), Op(0, 1)});
  plan.branches.emplace_back();
  plan.branches[0].begin = 3;
  plan.branches[0].end = plan.branches[0].next = 4;
  RemoveImpliedWaits(&plan);
  EXPECT_THAT(plan.instructions, ElementsAre(Instruction{Kind::kBranch, 0, 0}, Op(0, 0), Op(0, 1)));
  EXPECT_EQ(plan.branches[0].begin, 1);
  EXPECT_EQ(plan.branches[0].next, 2);
}

// Pairs of ops of which the first is done before the second begins.
std::set<std::pair<int, int>> Order(const Plan& plan) {
  std::set<std::pair<int, int>> order;
  std::map<int, std::set<int>> before;  // by stream: ops that are done before its next op
  std::map<int, std::set<int>> events;
  for (const Instruction& instruction : plan.instructions) {
    std::set<int>& done = before[instruction.stream];
    if (instruction.kind == Kind::kRunOp) {
      for (int op : done) order.emplace(op, instruction.index);
      done.insert(instruction.index);
    } else if (instruction.kind == Kind::kRecord) {
      events[instruction.index] = done;
    } else {
      done.insert(events[instruction.index].begin(), events[instruction.index].end());
    }
  }
  return order;
}

TEST(ImpliedWaitsTest, OrderOfOpsStays) {
  std::mt19937 random(1);
  size_t num_removed = 0;
  for (int round = 0; round < 300; ++round) {
    const int num_streams = 2 + static_cast<int>(random() % 3);
    std::vector<Instruction> instructions;
    int num_ops = 0, num_events = 0;
    for (int i = 0; i < 40; ++i) {
      const int stream = static_cast<int>(random() % num_streams);
      if (random() % 3 == 0) {
        instructions.push_back(Op(stream, num_ops++));
        continue;
      }
      instructions.push_back(Record(stream, num_events));
      for (int to = 0; to < num_streams; ++to) {
        if (to != stream && random() % 2 == 0) instructions.push_back(Wait(to, num_events));
      }
      ++num_events;
    }
    Plan plan = MakePlan(num_streams, num_events, instructions);
    const auto expected = Order(plan);
    RemoveImpliedWaits(&plan);
    num_removed += instructions.size() - plan.instructions.size();
    ASSERT_EQ(Order(plan), expected) << "round " << round;
    // Another time, there is nothing to remove.
    const std::vector<Instruction> once = plan.instructions;
    RemoveImpliedWaits(&plan);
    ASSERT_EQ(plan.instructions, once) << "round " << round;
  }
  EXPECT_GT(num_removed, 300U);
}

}  // namespace
}  // namespace weft::testing
