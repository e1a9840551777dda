#include "ops/analysis/training/gradients.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// "w@GRAD of w: op 0 (mul_grad) .. op 1 (sgd)"
std::string Text(const Program& program, const Gradient& gradient) {
  return absl::StrCat(
      program.name(gradient.grad), " of ", program.name(gradient.param), ": ",
      program.op(gradient.completed_by).DebugName(), " .. ",
      gradient.first_use.valid() ? program.op(gradient.first_use).DebugName() : "end");
}

// Each gradient as above, then each skipped one as "skipped g: why".
std::vector<std::string> Analyze(const Program& program,
                                 const std::set<std::string>& distributed_params = {}) {
  const auto analysis = AnalyzeGradients(program, distributed_params);
  if (!analysis.ok()) return {analysis.status().ToString()};
  std::vector<std::string> texts;
  for (const Gradient& gradient : analysis->gradients) texts.push_back(Text(program, gradient));
  for (const SkippedGradient& skipped : analysis->skipped) {
    texts.push_back(absl::StrCat("skipped ", program.name(skipped.grad), ": ", skipped.why));
  }
  for (const SkippedGradient& unclear : analysis->unclear) {
    texts.push_back(absl::StrCat("unclear ", program.name(unclear.grad), ": ", unclear.why));
  }
  return texts;
}

// A backward op that computes the gradient of w.
void AddBackward(ProgramBuilder* p, const std::string& w) {
  p->Param(w).Op("mul_grad", {}, {{"Y@GRAD", {w + "@GRAD"}}}, kRoleBackward);
  p->Pairs({w, w + "@GRAD"});
}

void AddSgd(ProgramBuilder* p, const std::string& w) {
  p->Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}}, {{"ParamOut", {w}}}, kRoleOptimize);
}

// --- FindGradientPairs ---------------------------------------------------------------------------

TEST(FindGradientPairs, PairsOfBackwardOpsComeInProgramOrderEachOnce) {
  ProgramBuilder p;
  p.Param("w").Param("b");
  p.Op("fc_grad", {}, {{"B@GRAD", {"b@GRAD"}}, {"W@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"b", "b@GRAD", "w", "w@GRAD"});
  p.Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  const Program program = p.Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<GradientPair> pairs, FindGradientPairs(program));
  ASSERT_EQ(pairs.size(), 2);
  EXPECT_EQ(program.name(pairs[0].param), "b");
  EXPECT_EQ(program.name(pairs[0].grad), "b@GRAD");
  EXPECT_EQ(program.name(pairs[1].grad), "w@GRAD");
  EXPECT_EQ(program.op(pairs[1].op).DebugName(), "op 0 (fc_grad)");
}

TEST(FindGradientPairs, PairsOfOptimizersAndEmptyGradientsAreNone) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"@EMPTY@"}}}, kRoleBackward).Pairs({"w", "@EMPTY@"});
  p.Op("clip", {{"X", {"g"}}}, {{"Out", {"g"}}}, kRoleOptimize).Pairs({"w", "g"});
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<GradientPair> pairs, FindGradientPairs(p.Build()));
  EXPECT_THAT(pairs, IsEmpty());
}

TEST(FindGradientPairs, OddNumberOfNamesIsAnError) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {}, kRoleBackward).Pairs({"w"});
  EXPECT_THAT(FindGradientPairs(p.Build()),
              StatusIs(kInvalid, HasSubstr("op 0 (mul_grad): attribute op_role_var")));
}

TEST(FindGradientPairs, NameThatIsNotDeclaredIsAnError) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {}, kRoleBackward).Pairs({"w", "w@GRAD"});
  pb::ProgramDesc desc = p.desc();
  desc.mutable_blocks(0)->mutable_vars()->RemoveLast();
  WEFT_ASSERT_OK_AND_ASSIGN(const Program no_grad, Program::FromProto(desc));
  EXPECT_THAT(FindGradientPairs(no_grad),
              StatusIs(kInvalid,
                       "op 0 (mul_grad): attribute op_role_var: gradient w@GRAD is not "
                       "declared"));
  desc.mutable_blocks(0)->mutable_vars(0)->set_name("w@GRAD");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program no_param, Program::FromProto(desc));
  EXPECT_THAT(
      FindGradientPairs(no_param),
      StatusIs(kInvalid, "op 0 (mul_grad): attribute op_role_var: parameter w is not declared"));
}

TEST(FindGradientPairs, GradientOfTwoParametersIsAnError) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"g"}}}, kRoleBackward).Pairs({"v", "g"});
  p.Op("mul_grad", {}, {{"Y@GRAD", {"g"}}}, kRoleBackward).Pairs({"w", "g"});
  EXPECT_THAT(FindGradientPairs(p.Build()),
              StatusIs(kInvalid,
                       "op 1 (mul_grad): attribute op_role_var: gradient g is paired "
                       "with parameter w, before with v"));
}

// --- AnalyzeGradients ----------------------------------------------------------------------------

TEST(AnalyzeGradients, GradientReachesFromTheOpThatCompletesItToItsFirstUse) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("relu_grad", {}, {{"X@GRAD", {"x@GRAD"}}}, kRoleBackward);
  p.Op("clip", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleOptimize);
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 0 (mul_grad) .. op 2 (clip)"));
}

TEST(AnalyzeGradients, LaterWriteOfBackwardCompletesIt) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("grad_add", {{"X", {"w@GRAD"}}, {"Y", {"more"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 1 (grad_add) .. op 2 (sgd)"));
}

// A reduction in place must not overtake a reader of the local value.
TEST(AnalyzeGradients, LaterReadOfBackwardCompletesIt) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("relu_grad", {{"Out@GRAD", {"w@GRAD"}}}, {{"X@GRAD", {"x@GRAD"}}}, kRoleBackward);
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 1 (relu_grad) .. op 2 (sgd)"));
}

TEST(AnalyzeGradients, FetchIsAUse) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("fetch", {{"X", {"w@GRAD"}}}, {{"Out", {"fetched"}}});
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 0 (mul_grad) .. op 1 (fetch)"));
}

TEST(AnalyzeGradients, UnusedGradientReachesTheEnd) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 0 (mul_grad) .. end"));
}

TEST(AnalyzeGradients, GradientsComeInTheOrderOfCompletion) {
  ProgramBuilder p;
  AddBackward(&p, "v");
  AddBackward(&p, "w");
  p.Op("scale", {{"X", {"v@GRAD"}}}, {{"Out", {"v@GRAD"}}}, kRoleBackward);
  AddSgd(&p, "v");
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 1 (mul_grad) .. op 4 (sgd)",
                                              "v@GRAD of v: op 2 (scale) .. op 3 (sgd)"));
}

TEST(AnalyzeGradients, VariableThatIsWrittenAgainAfterItsUseIsTwoGradients) {
  ProgramBuilder p;
  p.Param("w");
  for (int loss = 0; loss < 2; ++loss) {
    p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
    AddSgd(&p, "w");
  }
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 0 (mul_grad) .. op 1 (sgd)",
                                              "w@GRAD of w: op 2 (mul_grad) .. op 3 (sgd)"));
}

TEST(AnalyzeGradients, SummandsOfASharedWeightAreParts) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"part"}}}, kRoleBackward).Pairs({"w", "part"});
  p.Op("sum", {{"X", {"part"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()),
              ElementsAre("w@GRAD of w: op 1 (sum) .. op 2 (sgd)",
                          "skipped part: only backward uses it, last in op 1 (sum): it is a part "
                          "of another gradient"));
}

TEST(AnalyzeGradients, GradientThatNothingWritesIsSkipped) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {}, kRoleBackward).Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("skipped w@GRAD: no op of backward writes it"));
}

TEST(AnalyzeGradients, DistributedParametersAreSkipped) {
  ProgramBuilder p;
  AddBackward(&p, "v");
  AddBackward(&p, "w");
  EXPECT_THAT(Analyze(p.Build(), {"v"}),
              ElementsAre("w@GRAD of w: op 1 (mul_grad) .. end",
                          "skipped v@GRAD: its parameter is distributed"));
}

TEST(AnalyzeGradients, MissingDistributedParameterIsAnError) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  EXPECT_THAT(AnalyzeGradients(p.Build(), {"fc.w"}),
              StatusIs(kInvalid, "distributed parameter fc.w is not a variable of the program"));
}

// --- Sub-blocks ----------------------------------------------------------------------------------

TEST(AnalyzeGradients, UseInASubBlockIsAUseByTheOpThatHoldsIt) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("conditional_block", {}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0).Op("conditional_block", {}, {}).BlockAttr("sub_block", 2);
  p.NewBlock(1);
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()),
              ElementsAre("w@GRAD of w: op 0 (mul_grad) .. op 1 (conditional_block)"));
}

TEST(AnalyzeGradients, WriteOfBackwardInASubBlockCompletesTheGradient) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("conditional_block_grad", {}, {}, kRoleBackward).BlockAttr("sub_block", 1);
  AddSgd(&p, "w");
  p.NewBlock(0).Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  EXPECT_THAT(Analyze(p.Build()),
              ElementsAre("w@GRAD of w: op 1 (conditional_block_grad) .. op 2 (sgd)"));
}

TEST(AnalyzeGradients, VariableOfTheSameNameInASubBlockIsAnother) {
  ProgramBuilder p;
  AddBackward(&p, "w");
  p.Op("while_grad", {}, {}, kRoleBackward).BlockAttr("sub_block", 1);
  AddSgd(&p, "w");
  p.NewBlock(0).Var("w@GRAD");
  p.Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 0 (mul_grad) .. op 2 (sgd)"));
}

TEST(AnalyzeGradients, PairInsideASubBlockIsAnError) {
  ProgramBuilder p;
  p.Param("w").Op("while_grad", {}, {}, kRoleBackward).BlockAttr("sub_block", 1);
  p.NewBlock(0).Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  EXPECT_THAT(AnalyzeGradients(p.Build(), {}),
              StatusIs(kInvalid, HasSubstr("block 1, op 0 (mul_grad): completes a gradient inside "
                                           "a sub-block")));
}

// --- Accumulated gradients ----------------------------------------------------------------------

// w's gradient is added to a sum in every step; block 1 uses the sum up.
ProgramBuilder GradientMerge() {
  ProgramBuilder p;
  p.Param("w").Var("cond").Var("sum");
  p.last_var().set_persistable(true);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Op("elementwise_add", {{"X", {"w@GRAD"}}, {"Y", {"sum"}}}, {{"Out", {"sum"}}}, kRoleBackward);
  p.Pairs({"w", "sum"});
  p.Op("conditional_block", {{"Cond", {"cond"}}, {"Input", {"sum", "w"}}}, {{"Out", {"sum"}}});
  p.BlockAttr("sub_block", 1);
  return p;
}

void AddUpdateBlock(ProgramBuilder* p, bool clear) {
  p->NewBlock(0);
  p->Op("scale", {{"X", {"sum"}}}, {{"Out", {"sum"}}}, kRoleBackward);
  p->Op("sgd", {{"Param", {"w"}}, {"Grad", {"sum"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  if (clear) p->Op("fill_constant", {}, {{"Out", {"sum"}}}, kRoleOptimize);
}

TEST(AnalyzeGradients, AccumulatedGradientIsCompleteInTheBlockThatUsesItUp) {
  ProgramBuilder p = GradientMerge();
  AddUpdateBlock(&p, /*clear=*/true);
  const Program program = p.Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const GradientAnalysis analysis, AnalyzeGradients(program, {}));
  ASSERT_EQ(analysis.gradients.size(), 1);
  EXPECT_EQ(Text(program, analysis.gradients[0]),
            "sum of w: op 1 (elementwise_add) .. block 1, op 0 (scale)");
  EXPECT_EQ(analysis.gradients[0].block, 1);
}

// A block inside the block clips the sum: its op does not name what its block touches.
TEST(AnalyzeGradients, UseOfAnAccumulatedGradientInANestedBlockCounts) {
  ProgramBuilder p = GradientMerge();
  p.NewBlock(0);
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 2);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"sum"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("fill_constant", {}, {{"Out", {"sum"}}}, kRoleOptimize);
  p.NewBlock(1);
  p.Op("clip", {{"X", {"sum"}}}, {{"Out", {"sum"}}}, kRoleOptimize);
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("sum of w: op 1 (elementwise_add) .. block 1, op 0 "
                                              "(conditional_block)"));
}

TEST(AnalyzeGradients, AccumulatedGradientThatIsNotClearedIsUnclear) {
  ProgramBuilder p = GradientMerge();
  AddUpdateBlock(&p, /*clear=*/false);
  EXPECT_THAT(Analyze(p.Build()),
              ElementsAre(HasSubstr("unclear sum: not overwritten at the end of the block")));
}

TEST(AnalyzeGradients, AccumulatedGradientWithAnotherUserIsUnclear) {
  ProgramBuilder p = GradientMerge();
  p.Op("assign", {{"X", {"sum"}}}, {{"Out", {"copy"}}});
  AddUpdateBlock(&p, /*clear=*/true);
  EXPECT_THAT(Analyze(p.Build()),
              ElementsAre(HasSubstr("unclear sum: expected one conditional op that uses it")));
}

TEST(AnalyzeGradients, AccumulatedGradientThatIsUsedInEveryStepIsUnclear) {
  ProgramBuilder p;
  p.Param("w").Var("w@GRAD");
  p.last_var().set_persistable(true);
  p.Op("elementwise_add", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()),
              ElementsAre(HasSubstr("unclear w@GRAD: expected one conditional op")));
}

// Users mark what they fetch.
TEST(AnalyzeGradients, PersistableGradientThatEachStepMakesAnewIsNotAccumulated) {
  ProgramBuilder p;
  p.Var("w@GRAD");
  p.last_var().set_persistable(true);
  AddBackward(&p, "w");
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre("w@GRAD of w: op 0 (mul_grad) .. op 1 (sgd)"));
}

TEST(AnalyzeGradients, PersistableGradientThatIsReadBeforeItIsMadeMayBeAccumulated) {
  ProgramBuilder p;
  p.Var("w@GRAD");
  p.last_var().set_persistable(true);
  p.Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"old"}}}, kRoleBackward);
  AddBackward(&p, "w");
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre(HasSubstr("unclear w@GRAD")));
}

// A buffer keeps what its members hold.
TEST(AnalyzeGradients, PersistableGradientInABufferMayBeAccumulated) {
  ProgramBuilder p;
  p.Var("w@GRAD");
  p.last_var().set_persistable(true);
  p.Op("coalesce_tensor", {}, {{"Output", {"w@GRAD"}}}, kRoleBackward);
  AddBackward(&p, "w");
  AddSgd(&p, "w");
  EXPECT_THAT(Analyze(p.Build()), ElementsAre(HasSubstr("unclear w@GRAD")));
}

}  // namespace
}  // namespace weft::testing
