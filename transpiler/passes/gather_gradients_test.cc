#include "transpiler/passes/gather_gradients.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

ProgramBuilder OneGradient(std::vector<int64_t> dims = {2, 3}) {
  ProgramBuilder p;
  p.Param("w", dims).Var("w@GRAD", dims);
  p.Op("mul_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("clip", {{"X", {"w@GRAD"}}}, {{"Out", {"clipped"}}}, kRoleOptimize);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"clipped"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  return p;
}

TEST(GatherGradients, EveryRankAveragesBeforeTheFirstUse) {
  Program program = OneGradient().Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients", ContextWithRanks(3), &program));
  EXPECT_THAT(
      OpTexts(program),
      ElementsAre("mul_grad(y@GRAD -> w@GRAD)",          //
                  "c_wait_compute@0(w@GRAD -> w@GRAD)",  //
                  "c_allgather@0(w@GRAD -> w@GRAD@GATHERED)",
                  "c_wait_comm@0(w@GRAD, w@GRAD@GATHERED -> w@GRAD, w@GRAD@GATHERED)",
                  "split(w@GRAD@GATHERED -> gathered_part_0, gathered_part_1, gathered_part_2)",
                  "sum(gathered_part_0, gathered_part_1, gathered_part_2 -> w@GRAD)",
                  "scale(w@GRAD -> w@GRAD)",  //
                  "clip(w@GRAD -> clipped)",  //
                  "sgd(w, clipped -> w)"));
  const Op scale = program.op(program.block(0).ops()[6]);
  EXPECT_EQ(scale.FindAttr("scale")->f(), static_cast<float>(1.0 / 3));
}

TEST(GatherGradients, NewVariablesHaveTheShapesOfAllRanksAndOfOne) {
  Program program = OneGradient().Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients", ContextWithRanks(4), &program));
  const auto dims = [&](const char* name) {
    const auto tensor =
        program.var(program.block(0).FindVar(program.FindSymbol(name))).ToProto().type();
    return std::vector<int64_t>(tensor.lod_tensor().tensor().dims().begin(),
                                tensor.lod_tensor().tensor().dims().end());
  };
  EXPECT_THAT(dims("w@GRAD@GATHERED"), ElementsAre(8, 3));
  EXPECT_THAT(dims("gathered_part_3"), ElementsAre(2, 3));
}

// Each sum is taken before the next gradient is split.
TEST(GatherGradients, GradientsOfOneTypeShareTheVariablesOfTheParts) {
  ProgramBuilder p;
  const std::vector<int64_t> small = {2}, large = {4, 2};
  for (const auto& [param, dims] :
       {std::pair<std::string, std::vector<int64_t>>{"a", large}, {"b", small}, {"c", large}}) {
    p.Param(param, dims).Var(param + "@GRAD", dims);
    p.Op("mul_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {param + "@GRAD"}}}, kRoleBackward);
    p.Pairs({param, param + "@GRAD"});
  }
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients{scale=none}", ContextWithRanks(2), &program));
  std::vector<std::string> texts = OpTexts(program);
  texts.erase(texts.begin(), texts.end() - 6);
  EXPECT_THAT(texts, ElementsAre("split(a@GRAD@GATHERED -> gathered_part_0, gathered_part_1)",
                                 "sum(gathered_part_0, gathered_part_1 -> a@GRAD)",
                                 "split(b@GRAD@GATHERED -> gathered_part_2, gathered_part_3)",
                                 "sum(gathered_part_2, gathered_part_3 -> b@GRAD)",
                                 "split(c@GRAD@GATHERED -> gathered_part_0, gathered_part_1)",
                                 "sum(gathered_part_0, gathered_part_1 -> c@GRAD)"));
}

TEST(GatherGradients, NamesThatTheProgramHasArePassedOver) {
  ProgramBuilder p = OneGradient();
  p.Var("w@GRAD@GATHERED").Var("w@GRAD@GATHERED_0").Var("gathered_part_1");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[2], "c_allgather@0(w@GRAD -> w@GRAD@GATHERED_1)");
  EXPECT_EQ(OpTexts(program)[4], "split(w@GRAD@GATHERED_1 -> gathered_part_0, gathered_part_2)");
}

TEST(GatherGradients, SumIsNotDividedWhereTheLossGradientWas) {
  ProgramBuilder p;
  p.Op("fill_constant", {}, {{"Out", {"y@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.Param("w").Op("mul_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad,gather-gradients", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program).back(), "sum(gathered_part_0, gathered_part_1 -> w@GRAD)");
}

TEST(GatherGradients, ScalarsTravelAsVectorsOfOneElement) {
  Program program = OneGradient({}).Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[5], "sum(gathered_part_0, gathered_part_1 -> gathered_part_0)");
  EXPECT_EQ(OpTexts(program)[6], "reshape2(gathered_part_0 -> w@GRAD)");
}

TEST(GatherGradients, UnknownNumberOfRanksIsRefused) {
  Program program = OneGradient().Build();
  EXPECT_THAT(RunPasses("gather-gradients", ContextWithRanks(0), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("gathering gradients needs the number of ranks")));
}

TEST(GatherGradients, TooManyRanksAreRefused) {
  Program program = OneGradient().Build();
  EXPECT_THAT(RunPasses("gather-gradients", ContextWithRanks(2000000000), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected at most 1024 ranks, found 2000000000")));
}

TEST(GatherGradients, AccumulatedGradientsAreGatheredWhereTheyAreUsed) {
  ProgramBuilder p;
  p.Param("w").Var("cond").Var("total");
  p.last_var().set_persistable(true);
  p.Op("elementwise_add", {{"X", {"g"}}, {"Y", {"total"}}}, {{"Out", {"total"}}}, kRoleBackward);
  p.Pairs({"w", "total"});
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"total"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("fill_constant", {}, {{"Out", {"total"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients", ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("elementwise_add(g, total -> total)", HasSubstr("conditional_block")));
  EXPECT_THAT(OpTexts(program, 1),
              ElementsAre("c_wait_compute@0(total -> total)",        //
                          "c_allgather@0(total -> total@GATHERED)",  //
                          "c_wait_comm@0(total, total@GATHERED -> total, total@GATHERED)",
                          "split(total@GATHERED -> gathered_part_0, gathered_part_1)",
                          "sum(gathered_part_0, gathered_part_1 -> total)",
                          "scale(total -> total)",  //
                          "sgd(w, total -> w)",     //
                          "fill_constant( -> total)"));
  for (const char* name : {"total@GATHERED", "gathered_part_0", "gathered_part_1"}) {
    EXPECT_TRUE(program.block(1).FindVar(program.FindSymbol(name)).valid()) << name;
  }
}

TEST(GatherGradients, GatheredGradientsAreNotGatheredOrReducedAgain) {
  Program program = OneGradient().Build();
  WEFT_ASSERT_OK(RunPasses("gather-gradients", ContextWithRanks(2), &program));
  for (const char* pass : {"gather-gradients", "grad-all-reduce", "local-sgd"}) {
    EXPECT_THAT(RunPasses(pass, ContextWithRanks(2), &program),
                StatusIs(kRefused, HasSubstr("gradients-reduced holds already: op 2 (c_allgather) "
                                             "takes w@GRAD")));
  }
}

}  // namespace
}  // namespace weft
