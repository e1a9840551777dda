#include "ops/analysis/core/updates.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// "w by op 0 (adam): m1, m2"
std::vector<std::string> Updates(const Program& program) {
  std::vector<std::string> texts;
  for (const ParamUpdate& update : FindUpdates(program)) {
    std::string text =
        absl::StrCat(program.name(update.param), " by ", program.op(update.op).DebugName());
    if (update.master.valid()) absl::StrAppend(&text, " with ", program.name(update.master));
    const auto name = [&](std::string* out, Symbol s) { absl::StrAppend(out, program.name(s)); };
    if (!update.states.empty()) {
      absl::StrAppend(&text, ": ", absl::StrJoin(update.states, ", ", name));
    }
    texts.push_back(text);
  }
  return texts;
}

TEST(FindUpdates, StatesAreWhatTheOptimizerRewritesInPlace) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("sgd", {{"Param", {"v"}}, {"Grad", {"g"}}}, {{"ParamOut", {"v"}}}, kRoleOptimize);
  p.Op("momentum", {{"Param", {"w"}}, {"Velocity", {"vel"}}, {"MasterParam", {"w32"}}},
       {{"ParamOut", {"w"}}, {"VelocityOut", {"vel"}}, {"MasterParamOut", {"w32"}}}, kRoleOptimize);
  EXPECT_THAT(Updates(p.Build()),
              ElementsAre("v by op 0 (sgd)", "w by op 1 (momentum) with w32: vel"));
}

TEST(FindUpdates, EmptySlotsAreNoStates) {
  ProgramBuilder p;
  p.Param("w").Op("momentum", {{"Param", {"w"}}, {"Velocity", {"vel"}}},
                  {{"ParamOut", {"w"}}, {"VelocityOut", {"vel"}}, {"MasterParamOut", {"@EMPTY@"}}},
                  kRoleOptimize);
  EXPECT_THAT(Updates(p.Build()), ElementsAre("w by op 0 (momentum): vel"));
}

TEST(FindUpdates, SubBlocksAndOptimizersThatAreNotKnownCount) {
  ProgramBuilder p;
  p.Param("w").Var("cond");
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  p.Op("my_optimizer", {{"Param", {"w"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("my_metric", {{"Param", {"w"}}}, {{"Out", {"m"}}}, kRoleForward);
  EXPECT_THAT(Updates(p.Build()), ElementsAre("w by block 1, op 0 (my_optimizer)"));
}

std::vector<std::string> Names(const Program& program, const std::vector<Symbol>& symbols) {
  std::vector<std::string> names;
  for (Symbol symbol : symbols) names.emplace_back(program.name(symbol));
  return names;
}

void SetPersistable(ProgramBuilder* p) { p->last_var().set_persistable(true); }

TEST(FindRunningStatistics, PersistableTensorsThatForwardRewrites) {
  ProgramBuilder p;
  p.Param("mean").Param("variance").Param("w");
  p.Op("batch_norm", {{"X", {"x"}}, {"Mean", {"mean"}}, {"Variance", {"variance"}}},
       {{"Y", {"y"}}, {"MeanOut", {"mean"}}, {"VarianceOut", {"variance"}}});
  p.Op("sgd", {{"Param", {"w"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  const Program program = p.Build();
  EXPECT_THAT(Names(program, FindRunningStatistics(program)), ElementsAre("mean", "variance"));
}

// Gradient merge: the op that runs the block has role forward, and lists all that the block
// touches.
TEST(FindRunningStatistics, WhatABlockOfUpdatesTouchesIsNone) {
  ProgramBuilder p;
  p.Param("w").Var("sum");
  SetPersistable(&p);
  p.Var("moment");
  SetPersistable(&p);
  p.Var("mean");
  SetPersistable(&p);
  p.Var("cond");
  p.Op("elementwise_add", {{"X", {"g"}}, {"Y", {"sum"}}}, {{"Out", {"sum"}}}, kRoleBackward);
  p.Op("conditional_block", {{"Cond", {"cond"}}, {"Input", {"w", "sum", "moment", "mean"}}},
       {{"Out", {"w", "sum", "moment", "mean"}}});
  p.BlockAttr("sub_block", 1).NewBlock(0);
  p.Op("batch_norm", {{"X", {"x"}}, {"Mean", {"mean"}}}, {{"Y", {"y"}}, {"MeanOut", {"mean"}}});
  p.Op("scale", {{"X", {"sum"}}}, {{"Out", {"sum"}}});
  p.Op("momentum", {{"Param", {"w"}}, {"Grad", {"sum"}}, {"Velocity", {"moment"}}},
       {{"ParamOut", {"w"}}, {"VelocityOut", {"moment"}}}, kRoleOptimize);
  const Program program = p.Build();
  EXPECT_THAT(Names(program, FindRunningStatistics(program)), ElementsAre("mean"));
}

TEST(FindRunningStatistics, RecomputedStatisticIsOneAndParameterWrittenByOtherOpsIsNot) {
  ProgramBuilder p;
  p.Param("mean").Param("target");
  for (int role : {kRoleForward, kRoleBackward}) {
    p.Op("batch_norm", {{"X", {"x"}}, {"Mean", {"mean"}}}, {{"Y", {"y"}}, {"MeanOut", {"mean"}}},
         role);
  }
  p.Op("scale", {{"X", {"target"}}}, {{"Out", {"target"}}});
  const Program program = p.Build();
  EXPECT_THAT(Names(program, FindRunningStatistics(program)), ElementsAre("mean"));
  EXPECT_THAT(Names(program, FindManuallyUpdatedParams(program)), ElementsAre("target"));
}

TEST(FindManuallyUpdatedParams, TargetsAndParametersTrainedByHand) {
  ProgramBuilder p;
  p.Param("target").Param("w").Param("frozen").Var("own@GRAD");
  for (const char* name : {"own", "state"}) {
    p.Var(name);
    SetPersistable(&p);
  }
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"g"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("elementwise_sub", {{"X", {"own"}}, {"Y", {"own@GRAD"}}}, {{"Out", {"own"}}}, kRoleOptimize);
  p.Op("scale", {{"X", {"state"}}}, {{"Out", {"state"}}}, kRoleOptimize);
  p.Op("assign", {{"X", {"w"}}}, {{"Out", {"target"}}});
  const Program program = p.Build();
  EXPECT_THAT(Names(program, FindTrainedByHand(program)), ElementsAre("own"));
  EXPECT_THAT(Names(program, FindManuallyUpdatedParams(program)), ElementsAre("own", "target"));
}

TEST(FindRunningStatistics, CountersAndTemporariesAreNone) {
  ProgramBuilder p;
  p.Var("step", {1}, pb::VarType::INT64);
  p.last_var().set_persistable(true);
  p.Op("increment", {{"X", {"step"}}}, {{"Out", {"step"}}});
  p.Op("relu", {{"X", {"t"}}}, {{"Out", {"t"}}});
  EXPECT_TRUE(FindRunningStatistics(p.Build()).empty());
}

}  // namespace
}  // namespace weft::testing
