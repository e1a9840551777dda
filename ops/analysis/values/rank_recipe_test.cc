#include "ops/analysis/values/rank_recipe.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::weft::testing::ProgramBuilder;

// Of the first op.
RankRecipe RecipeOf(const ProgramBuilder& builder) {
  const Program program = builder.Build();
  return MakeRankRecipe(program.op(program.block(0).ops()[0]));
}

RankRecipe RecipeOf(const std::string& type, const ProgramBuilder::Slots& inputs,
                    const ProgramBuilder::Slots& outputs) {
  return RecipeOf(ProgramBuilder().Op(type, inputs, outputs));
}

RankRecipe::Kind KindOf(const std::string& type,
                        const ProgramBuilder::Slots& inputs = {{"X", {"x"}}},
                        const ProgramBuilder::Slots& outputs = {{"Out", {"y"}}}) {
  return RecipeOf(type, inputs, outputs).kind;
}

TEST(RankRecipeTest, KindSaysHowAnOpIsFollowed) {
  EXPECT_EQ(KindOf("relu"), RankRecipe::Kind::kFunction);
  EXPECT_EQ(KindOf("op_without_schema"), RankRecipe::Kind::kFunction);
  EXPECT_EQ(KindOf("feed"), RankRecipe::Kind::kFeed);
  EXPECT_EQ(KindOf("coalesce_tensor", {{"Input", {"x"}}}, {{"Output", {"x"}}}),
            RankRecipe::Kind::kFuse);
}

TEST(RankRecipeTest, OpsWithoutEffectOnValuesAreIgnored) {
  EXPECT_EQ(KindOf("fetch"), RankRecipe::Kind::kIgnored);
  EXPECT_EQ(KindOf("c_wait_comm"), RankRecipe::Kind::kIgnored);
  EXPECT_EQ(KindOf("c_comm_init", {}, {}), RankRecipe::Kind::kIgnored);
}

TEST(RankRecipeTest, CollectivesAreThoseOfAnyPaddle) {
  EXPECT_EQ(KindOf("c_allreduce_max", {{"X", {"x"}}}, {{"Out", {"x"}}}),
            RankRecipe::Kind::kCollective);
  EXPECT_EQ(KindOf("all_reduce", {{"x", {"x"}}}, {{"out", {"x"}}}), RankRecipe::Kind::kCollective);
}

TEST(RankRecipeTest, BlocksAreFollowedInBranchesOnly) {
  ProgramBuilder branch, loop;
  branch.Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  loop.Op("while", {{"Condition", {"more"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  EXPECT_EQ(RecipeOf(branch).kind, RankRecipe::Kind::kBranch);
  EXPECT_EQ(RecipeOf(loop).kind, RankRecipe::Kind::kOpaqueBlock);
}

TEST(RankRecipeTest, TermsOfADifferenceAreFoundByTheirSlots) {
  const RankRecipe recipe =
      RecipeOf("elementwise_sub", {{"Y", {"b"}}, {"X", {"a"}}}, {{"Out", {"c"}}});
  EXPECT_EQ(recipe.algebra, Algebra::kSubtract);
  EXPECT_EQ(recipe.x, 1u);
  EXPECT_EQ(recipe.y, 0u);
}

TEST(RankRecipeTest, DifferenceOfOneTermIsAnyFunction) {
  const RankRecipe recipe = RecipeOf("elementwise_sub", {{"X", {"a"}}}, {{"Out", {"c"}}});
  EXPECT_EQ(recipe.algebra, Algebra::kNone);
  EXPECT_FALSE(recipe.is_linear);
}

TEST(RankRecipeTest, BackwardOpIsLinearInGradientsAndKnowsWhoseItMakes) {
  const RankRecipe recipe =
      RecipeOf("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"y@GRAD"}}},
               {{"Y@GRAD", {"w@GRAD"}}, {"X@GRAD", {"x@GRAD"}}});
  EXPECT_EQ(recipe.algebra, Algebra::kBackward);
  EXPECT_THAT(recipe.is_operand, ElementsAre(false, false, true));
  EXPECT_THAT(recipe.forward_input, ElementsAre(1, 0));
}

TEST(RankRecipeTest, GradientOfAMissingInputHasNoInput) {
  const RankRecipe recipe =
      RecipeOf("elementwise_add_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"X@GRAD", {"x@GRAD"}}});
  EXPECT_THAT(recipe.forward_input, ElementsAre(-1));
}

TEST(RankRecipeTest, SecondGradientIsLinearInThoseOfTheFirstOnes) {
  const RankRecipe product = RecipeOf(
      "mul_grad_grad",
      {{"DDX", {"xgg"}}, {"DDY", {"wgg"}}, {"DOut", {"y@GRAD"}}, {"X", {"x"}}, {"Y", {"w"}}},
      {{"DDOut", {"ygg"}}, {"DX", {"xg"}}, {"DY", {"wg"}}});
  EXPECT_EQ(product.algebra, Algebra::kBackward);
  EXPECT_THAT(product.is_operand, ElementsAre(true, true, false, false, false));
  EXPECT_THAT(product.forward_input, ElementsAre(2, 3, 4));

  const RankRecipe function =
      RecipeOf("sigmoid_grad_grad",
               {{"Out", {"y"}}, {"fwd_grad_out", {"y@GRAD"}}, {"grad_x@GRAD", {"x@GRAD@GRAD"}}},
               {{"Out@GRAD", {"yg"}}, {"fwd_grad_out@GRAD", {"ygg"}}});
  EXPECT_THAT(function.is_operand, ElementsAre(false, false, true));
  EXPECT_THAT(function.forward_input, ElementsAre(0, 1));
}

TEST(RankRecipeTest, OptimizerHasParametersAndGradients) {
  const RankRecipe recipe = RecipeOf(
      "sgd", {{"LearningRate", {"lr"}}, {"Param", {"w"}}, {"Grad", {"g"}}}, {{"ParamOut", {"w"}}});
  EXPECT_EQ(recipe.param.first, 1u);
  EXPECT_EQ(recipe.param.count, 1u);
  EXPECT_EQ(recipe.grad.first, 2u);
  EXPECT_EQ(recipe.master_out.count, 0u);
  EXPECT_THAT(recipe.in_place_of, ElementsAre(1));
}

TEST(RankRecipeTest, ParametersThatAnOpNamesAmongItsOutputsAreLeft) {
  EXPECT_THAT(RecipeOf("hierarchical_sigmoid", {{"X", {"x"}}, {"W", {"w"}}, {"Label", {"label"}}},
                       {{"Out", {"out"}}, {"PreOut", {"pre"}}, {"W_Out", {"w"}}})
                  .is_left,
              ElementsAre(false, false, true));
}

TEST(RankRecipeTest, ForwardOpHasNoParameters) {
  EXPECT_EQ(RecipeOf("relu", {{"Param", {"w"}}}, {{"Out", {"y"}}}).param.count, 0u);
}

}  // namespace
}  // namespace weft
