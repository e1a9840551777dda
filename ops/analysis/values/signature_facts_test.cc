#include "ops/analysis/values/signature_facts.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// Of the first op.
SignatureFacts FactsOf(const ProgramBuilder& builder) {
  const Program program = builder.Build();
  return MakeSignatureFacts(program.op(program.block(0).ops()[0]));
}

SignatureFacts FactsOf(const std::string& type, const ProgramBuilder::Slots& inputs,
                       const ProgramBuilder::Slots& outputs) {
  return FactsOf(ProgramBuilder().Op(type, inputs, outputs));
}

SignatureFacts::Kind KindOf(const std::string& type,
                            const ProgramBuilder::Slots& inputs = {{"X", {"x"}}},
                            const ProgramBuilder::Slots& outputs = {{"Out", {"y"}}}) {
  return FactsOf(type, inputs, outputs).kind;
}

TEST(SignatureFactsTest, KindSaysHowAnOpIsFollowed) {
  EXPECT_EQ(KindOf("relu"), SignatureFacts::Kind::kFunction);
  EXPECT_EQ(KindOf("op_without_schema"), SignatureFacts::Kind::kFunction);
  EXPECT_EQ(KindOf("feed"), SignatureFacts::Kind::kFeed);
  EXPECT_EQ(KindOf("coalesce_tensor", {{"Input", {"x"}}}, {{"Output", {"x"}}}),
            SignatureFacts::Kind::kFuse);
}

TEST(SignatureFactsTest, OpsWithoutEffectOnValuesAreIgnored) {
  EXPECT_EQ(KindOf("fetch"), SignatureFacts::Kind::kIgnored);
  EXPECT_EQ(KindOf("c_wait_comm"), SignatureFacts::Kind::kIgnored);
  EXPECT_EQ(KindOf("c_comm_init", {}, {}), SignatureFacts::Kind::kIgnored);
}

TEST(SignatureFactsTest, CollectivesAreThoseOfAnyPaddle) {
  EXPECT_EQ(KindOf("c_allreduce_max", {{"X", {"x"}}}, {{"Out", {"x"}}}),
            SignatureFacts::Kind::kCollective);
  EXPECT_EQ(KindOf("all_reduce", {{"x", {"x"}}}, {{"out", {"x"}}}),
            SignatureFacts::Kind::kCollective);
}

TEST(SignatureFactsTest, BlocksAreFollowedInBranchesOnly) {
  ProgramBuilder branch, loop;
  branch.Op("conditional_block", {{"Cond", {"due"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  loop.Op("while", {{"Condition", {"more"}}}, {}).BlockAttr("sub_block", 1).NewBlock();
  EXPECT_EQ(FactsOf(branch).kind, SignatureFacts::Kind::kBranch);
  EXPECT_EQ(FactsOf(loop).kind, SignatureFacts::Kind::kOpaqueBlock);
}

TEST(SignatureFactsTest, TermsOfADifferenceAreFoundByTheirSlots) {
  const SignatureFacts facts =
      FactsOf("elementwise_sub", {{"Y", {"b"}}, {"X", {"a"}}}, {{"Out", {"c"}}});
  EXPECT_EQ(facts.algebra, Algebra::kSubtract);
  EXPECT_EQ(facts.x, 1u);
  EXPECT_EQ(facts.y, 0u);
}

TEST(SignatureFactsTest, DifferenceOfOneTermIsAnyFunction) {
  const SignatureFacts facts = FactsOf("elementwise_sub", {{"X", {"a"}}}, {{"Out", {"c"}}});
  EXPECT_EQ(facts.algebra, Algebra::kNone);
  EXPECT_FALSE(facts.is_linear);
}

TEST(SignatureFactsTest, BackwardOpIsLinearInGradientsAndKnowsWhoseItMakes) {
  const SignatureFacts facts =
      FactsOf("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"y@GRAD"}}},
              {{"Y@GRAD", {"w@GRAD"}}, {"X@GRAD", {"x@GRAD"}}});
  EXPECT_EQ(facts.algebra, Algebra::kBackward);
  EXPECT_THAT(facts.is_operand, ElementsAre(false, false, true));
  EXPECT_THAT(facts.forward_input, ElementsAre(1, 0));
}

TEST(SignatureFactsTest, GradientOfAMissingInputHasNoInput) {
  const SignatureFacts facts =
      FactsOf("elementwise_add_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"X@GRAD", {"x@GRAD"}}});
  EXPECT_THAT(facts.forward_input, ElementsAre(-1));
}

TEST(SignatureFactsTest, SecondGradientIsLinearInThoseOfTheFirstOnes) {
  const SignatureFacts product = FactsOf(
      "mul_grad_grad",
      {{"DDX", {"xgg"}}, {"DDY", {"wgg"}}, {"DOut", {"y@GRAD"}}, {"X", {"x"}}, {"Y", {"w"}}},
      {{"DDOut", {"ygg"}}, {"DX", {"xg"}}, {"DY", {"wg"}}});
  EXPECT_EQ(product.algebra, Algebra::kBackward);
  EXPECT_THAT(product.is_operand, ElementsAre(true, true, false, false, false));
  EXPECT_THAT(product.forward_input, ElementsAre(2, 3, 4));

  const SignatureFacts function =
      FactsOf("sigmoid_grad_grad",
              {{"Out", {"y"}}, {"fwd_grad_out", {"y@GRAD"}}, {"grad_x@GRAD", {"x@GRAD@GRAD"}}},
              {{"Out@GRAD", {"yg"}}, {"fwd_grad_out@GRAD", {"ygg"}}});
  EXPECT_THAT(function.is_operand, ElementsAre(false, false, true));
  EXPECT_THAT(function.forward_input, ElementsAre(0, 1));
}

TEST(SignatureFactsTest, OptimizerHasParametersAndGradients) {
  const SignatureFacts facts = FactsOf(
      "sgd", {{"LearningRate", {"lr"}}, {"Param", {"w"}}, {"Grad", {"g"}}}, {{"ParamOut", {"w"}}});
  EXPECT_EQ(facts.param.first, 1u);
  EXPECT_EQ(facts.param.count, 1u);
  EXPECT_EQ(facts.grad.first, 2u);
  EXPECT_EQ(facts.master_out.count, 0u);
  EXPECT_THAT(facts.in_place_of, ElementsAre(1));
}

TEST(SignatureFactsTest, ParametersThatAnOpNamesAmongItsOutputsAreLeft) {
  EXPECT_THAT(FactsOf("hierarchical_sigmoid", {{"X", {"x"}}, {"W", {"w"}}, {"Label", {"label"}}},
                      {{"Out", {"out"}}, {"PreOut", {"pre"}}, {"W_Out", {"w"}}})
                  .is_left,
              ElementsAre(false, false, true));
}

TEST(SignatureFactsTest, ForwardOpHasNoParameters) {
  EXPECT_EQ(FactsOf("relu", {{"Param", {"w"}}}, {{"Out", {"y"}}}).param.count, 0u);
}

}  // namespace
}  // namespace weft::testing
