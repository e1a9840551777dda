#include "transpiler/passes/updates/existing_updates.h"

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

bool Never(const Op&) { return false; }
bool Always(const Op&) { return true; }

struct Found {
  std::vector<std::string> ops, vars, owners;
};

// The leftovers of a program whose parameters and gradients are kept.
Found LeftoversOf(absl::string_view text) {
  const Program program = CompactProgram(text);
  const auto updates = FindOldUpdates(program, Never);
  EXPECT_TRUE(updates.ok()) << updates.status();
  std::vector<Symbol> kept;
  for (const OldUpdate& update : *updates) {
    kept.push_back(update.param);
    kept.push_back(update.grad);
  }
  const Leftovers leftovers = FindLeftovers(program, *updates, kept);
  Found found;
  for (OpId id : leftovers.ops) found.ops.emplace_back(program.op(id).type());
  for (VarId id : leftovers.vars) found.vars.emplace_back(program.var(id).name());
  for (OpId id : leftovers.owners) found.owners.emplace_back(program.op(id).type());
  return found;
}

constexpr char kSgd[] =
    "Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]\n"
    "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";

TEST(OldUpdates, StatesAndRatesGoWithTheUpdate) {
  const Found found = LeftoversOf(R"(
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize {mu=0.9}
  )");
  EXPECT_THAT(found.ops, ElementsAre("momentum"));
  EXPECT_THAT(found.vars, UnorderedElementsAre("v", "lr"));
  EXPECT_THAT(found.owners, IsEmpty());
}

TEST(OldUpdates, SchedulesGoWithTheirCounter) {
  const Found found = LeftoversOf(R"(
    var step : fp32[1] persistable
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[step] = increment(X=[step]) role=lr_sched {step=1.0}
    Out=[lr] = scale(X=[step]) role=lr_sched {scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )");
  EXPECT_THAT(found.ops, UnorderedElementsAre("increment", "scale", "sgd"));
  EXPECT_THAT(found.vars, UnorderedElementsAre("step", "lr"));
}

TEST(OldUpdates, WhatOtherOpsReadStays) {
  const Found found = LeftoversOf(R"(
    var step : fp32[1] persistable
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[step] = increment(X=[step]) role=lr_sched {step=1.0}
    Out=[lr] = scale(X=[step]) role=lr_sched {scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Out=[report] = scale(X=[step]) role=forward {scale=2.0}
  )");
  EXPECT_THAT(found.ops, UnorderedElementsAre("scale", "sgd"));
  EXPECT_THAT(found.vars, ElementsAre("lr"));
}

TEST(OldUpdates, OpsThatLeadToTheGradientStay) {
  const Found found = LeftoversOf(R"(
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[decay] = scale(X=[w]) role=optimize {scale=0.1}
    Out=[w@GRAD] = sum(X=[w@GRAD, decay]) role=optimize vars=[w, w@GRAD]
    Out=[clipped] = clip(X=[w@GRAD]) role=optimize vars=[w, clipped] {min=-1.0, max=1.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[clipped], LearningRate=[lr]) role=optimize
  )");
  EXPECT_THAT(found.ops, ElementsAre("sgd"));
  EXPECT_THAT(found.vars, ElementsAre("lr"));
}

TEST(OldUpdates, OpsThatFollowTheParameterStay) {
  const Found found = LeftoversOf(std::string(kSgd) + R"(
    var average : fp32[2, 2] persistable
    Out=[average] = elementwise_add(X=[average], Y=[w]) role=optimize
    Out=[w] = clip(X=[w]) role=optimize {min=-1.0, max=1.0}
  )");
  EXPECT_THAT(found.ops, ElementsAre("sgd"));
}

TEST(OldUpdates, UnregisteredOpsStay) {
  const Found found = LeftoversOf(R"(
    var step : fp32[1] persistable
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[step] = increment(X=[step]) role=lr_sched {step=1.0}
    Out=[lr] = my_schedule(X=[step]) role=lr_sched
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )");
  EXPECT_THAT(found.ops, ElementsAre("sgd"));
  EXPECT_THAT(found.vars, IsEmpty());
}

TEST(OldUpdates, OpsOfOtherRolesStay) {
  const Found found = LeftoversOf(R"(
    var step : fp32[1] persistable
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[step] = increment(X=[step]) role=forward {step=1.0}
    Out=[lr] = scale(X=[step]) role=lr_sched {scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )");
  EXPECT_THAT(found.ops, UnorderedElementsAre("scale", "sgd"));
  EXPECT_THAT(found.vars, ElementsAre("lr"));
}

TEST(OldUpdates, BranchesGoWithTheirBlocks) {
  const Found found = LeftoversOf(R"(
    var lr : fp32[1] persistable
    var c : bool[1] need_check_feed
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[lr], Scope=[scope] = conditional_block(Cond=[c]) role=lr_sched {is_scalar_condition=true, sub_block=block(1)}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    block 1:
    Out=[lr] = fill_constant() role=lr_sched {shape=longs[1], dtype=5, value=0.5}
  )");
  EXPECT_THAT(found.ops, UnorderedElementsAre("conditional_block", "fill_constant", "sgd"));
  EXPECT_THAT(found.vars, UnorderedElementsAre("lr", "scope"));
  EXPECT_THAT(found.owners, IsEmpty());
}

TEST(OldUpdates, BranchWithTheUpdateStaysAndOwnsIt) {
  const Found found = LeftoversOf(R"(
    var v : fp32[2, 2] persistable
    var c : bool[1] need_check_feed
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[w, v], Scope=[scope] = conditional_block(Cond=[c], Input=[w, w@GRAD, v, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    block 1:
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize {mu=0.9}
  )");
  EXPECT_THAT(found.ops, ElementsAre("momentum"));
  EXPECT_THAT(found.vars, UnorderedElementsAre("v", "lr"));
  EXPECT_THAT(found.owners, ElementsAre("conditional_block"));
}

TEST(OldUpdates, GradientIsThatOfTheSlotOrOfTheRole) {
  const Program program = CompactProgram(R"(
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[d] = scale(X=[w@GRAD]) role=optimize vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[d], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  )");
  WEFT_ASSERT_OK_AND_ASSIGN(const auto by_slot, FindOldUpdates(program, Never));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto by_role, FindOldUpdates(program, Always));
  ASSERT_EQ(by_slot.size(), 1);
  ASSERT_EQ(by_role.size(), 1);
  EXPECT_EQ(program.name(by_slot[0].grad), "d");
  EXPECT_EQ(program.name(by_role[0].grad), "w@GRAD");
}

TEST(OldUpdates, OpsOfSeveralParametersGiveSeveralUpdates) {
  const Program program = CompactProgram(R"(
    Out=[a@GRAD] = scale(X=[x]) role=backward vars=[a, a@GRAD]
    Out=[b@GRAD] = scale(X=[x]) role=backward vars=[b, b@GRAD]
    ParamOut=[a, b], VelocityOut=[va, vb] = merged_momentum(Param=[a, b], Grad=[a@GRAD, b@GRAD], Velocity=[va, vb], LearningRate=[lr]) role=optimize {mu=0.9}
  )");
  WEFT_ASSERT_OK_AND_ASSIGN(const auto updates, FindOldUpdates(program, Never));
  std::vector<std::string> pairs;
  for (const OldUpdate& update : updates) {
    pairs.push_back(absl::StrCat(program.name(update.param), " ", program.name(update.grad)));
  }
  EXPECT_THAT(pairs, ElementsAre("a a@GRAD", "b b@GRAD"));
}

TEST(OldUpdates, UpdateWithoutAGradientIsNamed) {
  const Program program = CompactProgram(kSgd);
  EXPECT_THAT(FindOldUpdates(program, Always).status(),
              IsInvalidArgument("op 1 (sgd) updates w: expected its gradient"));
}

}  // namespace
}  // namespace weft::testing
