#include "ops/analysis/values/signature_facts.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// Of the first op.
SignatureFacts RecipeOf(const ProgramBuilder& builder) {
  const Program program = builder.Build();
  return MakeRankRecipe(program.op(program.block(0).ops()[0]));
}

SignatureFacts RecipeOf(const std::string& type, const ProgramBuilder::Slots& inputs,
                        const ProgramBuilder::Slots& outputs) {
  return RecipeOf(ProgramBuilder().Op(type, inputs, outputs));
}

SignatureFacts::Kind KindOf(const std::string& type,
                            const ProgramBuilder::Slots& inputs = {{"X", {"x"}}},
                            const ProgramBuilder::Slots& outputs = {{"Out", {"y"}}}) {
  return RecipeOf(type, inputs, outputs).kind;
}

TEST(RankRecipeTest, KindSaysHowAnOpIsFollowed) {
  EXPECT_EQ(KindOf("relu"), SignatureFacts::Kind::kFunction);
  EXPECT_EQ(KindOf("op_without_schema"), SignatureFacts::Kind::kFunction);
  EXPECT_EQ(KindOf("feed"), SignatureFacts::Kind::kFeed);
  EXPECT_EQ(KindOf("coalesce_tensor", {{"Input", {"x"}}}, {{"Output", {"x"}}}),
            SignatureFacts::Kind::kFuse);
}

TEST(RankRecipeTest, OpsWithoutEffectOnValuesAreIgnored) {
  EXPECT_EQ(KindOf("fetch"), SignatureFacts::Kind::kIgnored);
  EXPECT_EQ(KindOf("c_wait_comm"), SignatureFacts::Kind::kIgnored);
  EXPECT_EQ(KindOf("c_comm_init", {}, {}), SignatureFacts::Kind::kIgnored);
}

TEST(RankRecipeTest, CollectivesAreThoseOfAnyPaddle) {
  EXPECT_EQ(KindOf("c_allreduce_max", {{"X", {"x"}}}, {{"Out", {"x"}}}),
            SignatureFacts::Kind::kCollective);
  EXPECT_EQ(KindOf("all_reduce", {{"x", {"x"}}}, {{"out", {"x"}}}),
            SignatureFacts::Kind::kCollective);
}

TEST(RankRecipeTest, BlocksAreFollowedInBranchesOnly) {
  ProgramBuilder branch, loop;
  branch.Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  loop.Op("while", {{"Condition", {"more"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  EXPECT_EQ(RecipeOf(branch).kind, SignatureFacts::Kind::kBranch);
  EXPECT_EQ(RecipeOf(loop).kind, SignatureFacts::Kind::kOpaqueBlock);
}

TEST(RankRecipeTest, TermsOfADifferenceAreFoundByTheirSlots) {
  const SignatureFacts recipe =
      RecipeOf("elementwise_sub", {{"Y", {"b"}}, {"X", {"a"}}}, {{"Out", {"c"}}});
  EXPECT_EQ(recipe.algebra, Algebra::kSubtract);
  EXPECT_EQ(recipe.x, 1u);
  EXPECT_EQ(recipe.y, 0u);
}

TEST(RankRecipeTest, DifferenceOfOneTermIsAnyFunction) {
  const SignatureFacts recipe = RecipeOf("elementwise_sub", {{"X", {"a"}}}, {{"Out", {"c"}}});
  EXPECT_EQ(recipe.algebra, Algebra::kNone);
  EXPECT_FALSE(recipe.is_linear);
}

TEST(RankRecipeTest, BackwardOpIsLinearInGradientsAndKnowsWhoseItMakes) {
  const SignatureFacts recipe =
      RecipeOf("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"y@GRAD"}}},
               {{"Y@GRAD", {"w@GRAD"}}, {"X@GRAD", {"x@GRAD"}}});
  EXPECT_EQ(recipe.algebra, Algebra::kBackward);
  EXPECT_THAT(recipe.is_operand, ElementsAre(false, false, true));
  EXPECT_THAT(recipe.forward_input, ElementsAre(1, 0));
}

TEST(RankRecipeTest, GradientOfAMissingInputHasNoInput) {
  const SignatureFacts recipe =
      RecipeOf("elementwise_add_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"X@GRAD", {"x@GRAD"}}});
  EXPECT_THAT(recipe.forward_input, ElementsAre(-1));
}

TEST(RankRecipeTest, SecondGradientIsLinearInThoseOfTheFirstOnes) {
  const SignatureFacts product = RecipeOf(
      "mul_grad_grad",
      {{"DDX", {"xgg"}}, {"DDY", {"wgg"}}, {"DOut", {"y@GRAD"}}, {"X", {"x"}}, {"Y", {"w"}}},
      {{"DDOut", {"ygg"}}, {"DX", {"xg"}}, {"DY", {"wg"}}});
  EXPECT_EQ(product.algebra, Algebra::kBackward);
  EXPECT_THAT(product.is_operand, ElementsAre(true, true, false, false, false));
  EXPECT_THAT(product.forward_input, ElementsAre(2, 3, 4));

  const SignatureFacts function =
      RecipeOf("sigmoid_grad_grad",
               {{"Out", {"y"}}, {"fwd_grad_out", {"y@GRAD"}}, {"grad_x@GRAD", {"x@GRAD@GRAD"}}},
               {{"Out@GRAD", {"yg"}}, {"fwd_grad_out@GRAD", {"ygg"}}});
  EXPECT_THAT(function.is_operand, ElementsAre(false, false, true));
  EXPECT_THAT(function.forward_input, ElementsAre(0, 1));
}

TEST(RankRecipeTest, OptimizerHasParametersAndGradients) {
  const SignatureFacts recipe = RecipeOf(
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
}  // namespace weft::testing
