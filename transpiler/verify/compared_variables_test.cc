#include "transpiler/verify/compared_variables.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::weft::testing::BlockProgram;

constexpr char kVars[] =
    "    var w : fp32[4] persistable\n    var w@GRAD : fp32[4]\n"
    "    var v : fp32[4] parameter persistable\n    var lr : fp32[1] persistable\n"
    "    var x : fp32[4] need_check_feed\n";
constexpr char kMomentum[] =
    "    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], "
    "LearningRate=[lr]) role=optimize {mu=0.9}\n";

TEST(ComparedVariablesTest, WhatAnOptimizerUpdatesIsAParameterAndItsStateIsNot) {
  const Program program = BlockProgram(absl::StrCat(kVars, kMomentum));
  const ComparedVariables variables(program, {});
  EXPECT_TRUE(variables.IsParam("w"));
  EXPECT_FALSE(variables.IsParam("v"));  // although it is marked as one
  EXPECT_FALSE(variables.IsParam("lr"));
  EXPECT_FALSE(variables.IsSkipped("w"));
}

TEST(ComparedVariablesTest, ShardedParametersAreSkippedWithTheirStates) {
  const Program program = BlockProgram(absl::StrCat(kVars, kMomentum));
  const ComparedVariables variables(program, {"w"});
  EXPECT_TRUE(variables.IsSkipped("w"));
  EXPECT_TRUE(variables.IsSkipped("v"));
  EXPECT_FALSE(variables.IsSkipped("lr"));
}

TEST(ComparedVariablesTest, OtherOpsMayUpdateParameters) {
  const std::string update =
      "    Out=[w] = elementwise_sub(X=[w], Y=[w@GRAD]) role=optimize {axis=-1}\n";
  const Program updated = BlockProgram(absl::StrCat(kVars, update));
  EXPECT_TRUE(ComparedVariables(updated, {}).IsParam("w"));
  // What the forward pass writes is a state.
  const Program written =
      BlockProgram(absl::StrCat(kVars, "    Out=[w] = relu(X=[x]) role=forward\n", update));
  EXPECT_FALSE(ComparedVariables(written, {}).IsParam("w"));
}

}  // namespace
}  // namespace weft
