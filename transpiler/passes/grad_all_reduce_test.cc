#include "transpiler/passes/grad_all_reduce.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/tensor_type.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"
#include "transpiler/verify/matchers.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::HasNoRaces;
using ::weft::testing::HasOp;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Backward computes b's gradient, then w's; two optimizers use them in the other order.
ProgramBuilder TwoGradients() {
  ProgramBuilder p;
  p.Param("w").Param("b");
  p.Op("relu_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"X@GRAD", {"b@GRAD"}}}, kRoleBackward);
  p.Pairs({"b", "b@GRAD"});
  p.Op("mul_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("sgd", {{"Param", {"b"}}, {"Grad", {"b@GRAD"}}}, {{"ParamOut", {"b"}}}, kRoleOptimize);
  return p;
}

TEST(GradAllReduce, ReductionFollowsCompletionAndOneWaitPrecedesTheFirstUse) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("relu_grad(y@GRAD -> b@GRAD)",          //
                          "c_wait_compute@0(b@GRAD -> b@GRAD)",   //
                          "c_allreduce_avg@0(b@GRAD -> b@GRAD)",  //
                          "mul_grad(y@GRAD -> w@GRAD)",           //
                          "c_wait_compute@0(w@GRAD -> w@GRAD)",   //
                          "c_allreduce_avg@0(w@GRAD -> w@GRAD)",
                          "c_wait_comm@0(b@GRAD, w@GRAD -> b@GRAD, w@GRAD)",
                          "sgd(w, w@GRAD -> w)",  //
                          "sgd(b, b@GRAD -> b)"));
}

TEST(GradAllReduce, EachRingIsWaitedForAsLateAsItsFirstUseAllows) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce{nrings=2}", ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("relu_grad(y@GRAD -> b@GRAD)",          //
                          "c_wait_compute@0(b@GRAD -> b@GRAD)",   //
                          "c_allreduce_avg@0(b@GRAD -> b@GRAD)",  //
                          "mul_grad(y@GRAD -> w@GRAD)",           //
                          "c_wait_compute@1(w@GRAD -> w@GRAD)",   //
                          "c_allreduce_avg@1(w@GRAD -> w@GRAD)",  //
                          "c_wait_comm@1(w@GRAD -> w@GRAD)",      //
                          "sgd(w, w@GRAD -> w)",                  //
                          "c_wait_comm@0(b@GRAD -> b@GRAD)",      //
                          "sgd(b, b@GRAD -> b)"));
}

TEST(GradAllReduce, UseOfTheGradientThatWasCompleteFirstWaitsForAllOnItsRing) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"v"}}, {"Grad", {"v@GRAD"}}}, {{"ParamOut", {"v"}}}, kRoleOptimize);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[6], "c_wait_comm@0(v@GRAD, w@GRAD -> v@GRAD, w@GRAD)");
  EXPECT_EQ(OpTexts(program)[7], "sgd(v, v@GRAD -> v)");
  EXPECT_EQ(OpTexts(program)[8], "sgd(w, w@GRAD -> w)");
}

TEST(GradAllReduce, StreamsWaitForEachOtherWhateverTheRings) {
  for (const char* pass : {"grad-all-reduce", "grad-all-reduce{nrings=2}"}) {
    Program program = TwoGradients().Build();
    WEFT_ASSERT_OK(RunPasses(pass, ContextWithRanks(2), &program));
    EXPECT_THAT(program, HasNoRaces());
  }
}

TEST(GradAllReduce, AveragesWhereTheLossGradientIsNotDivided) {
  for (int nranks : {0, 2}) {  // 0: unknown
    for (const char* pass : {"grad-all-reduce", "grad-all-reduce{scale=avg}"}) {
      Program program = TwoGradients().Build();
      WEFT_ASSERT_OK(RunPasses(pass, ContextWithRanks(nranks), &program));
      EXPECT_THAT(program, HasOp("c_allreduce_avg").Times(2));
      EXPECT_THAT(program, HasOp("c_allreduce_sum").Times(0));
    }
  }
}

TEST(GradAllReduce, SumsWithScaleNone) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce{scale=none}", ContextWithRanks(2), &program));
  EXPECT_THAT(program, HasOp("c_allreduce_sum").Times(2));
  EXPECT_THAT(program, HasOp("c_allreduce_avg").Times(0));
}

// A loss whose gradient is filled and, where `nranks` is not 0, divided; then w's gradient.
ProgramBuilder OneLoss(int nranks) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  if (nranks != 0) {
    p.Op("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {"loss@GRAD"}}}, kRoleBackward);
    if (nranks > 0) p.IntAttr("nranks", nranks);
  }
  p.Op("mul_grad", {{"Out@GRAD", {"loss@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  return p;
}
constexpr int kDoesNotSay = -1;  // divided, without attribute nranks

TEST(GradAllReduce, SumsWhereTheLossGradientIsDividedByTheNumberOfRanks) {
  for (int nranks : {0, 2}) {
    for (const char* pass : {"grad-all-reduce", "grad-all-reduce{scale=loss_grad}"}) {
      Program program = OneLoss(2).Build();
      WEFT_ASSERT_OK(RunPasses(pass, ContextWithRanks(nranks), &program));
      EXPECT_EQ(OpTexts(program)[4], "c_allreduce_sum@0(w@GRAD -> w@GRAD)");
    }
  }
}

TEST(GradAllReduce, LossGradientDividedForOtherRanksIsRefused) {
  Program program = OneLoss(4).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (scale): divides the loss gradient loss@GRAD for "
                                           "4 ranks, expected 2")));
}

TEST(GradAllReduce, LossGradientOfWhichNobodyKnowsByWhatItIsDividedIsLeftToTheUser) {
  Program program = OneLoss(kDoesNotSay).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (scale) rewrites the loss gradient loss@GRAD in "
                                           "place, but does not say for how many ranks")));
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce{scale=loss_grad}", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[4], "c_allreduce_sum@0(w@GRAD -> w@GRAD)");
}

TEST(GradAllReduce, ScaleLossGradWithoutTheDivisionIsRefused) {
  Program program = OneLoss(0).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce{scale=loss_grad}", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("loss gradient loss@GRAD is not divided by the number "
                                           "of ranks; run pass scale-loss-grad first")));
  program = TwoGradients().Build();
  EXPECT_THAT(RunPasses("grad-all-reduce{scale=loss_grad}", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("no op fills the gradient of a loss")));
}

TEST(GradAllReduce, OneOfTwoLossGradientsDividedIsRefused) {
  ProgramBuilder p = OneLoss(2);
  p.Op("fill_constant", {}, {{"Out", {"loss2@GRAD"}}}, kRoleBackward | kRoleLoss);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("loss gradient loss2@GRAD is not divided")));
}

TEST(GradAllReduce, SeveralPairsOnOneOpShareTheWaitOfTheirRing) {
  ProgramBuilder p;
  p.Param("w").Param("b");
  p.Op("fc_grad", {}, {{"W@GRAD", {"w@GRAD"}}, {"B@GRAD", {"b@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD", "b", "b@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program), ElementsAre("fc_grad( -> w@GRAD, b@GRAD)",
                                            "c_wait_compute@0(w@GRAD, b@GRAD -> w@GRAD, b@GRAD)",
                                            "c_allreduce_avg@0(w@GRAD -> w@GRAD)",
                                            "c_allreduce_avg@0(b@GRAD -> b@GRAD)",
                                            "c_wait_comm@0(w@GRAD, b@GRAD -> w@GRAD, b@GRAD)"));
}

TEST(GradAllReduce, SharedWeightIsReducedOnceAfterTheSum) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD@RENAME@0"}}}, kRoleBackward);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD@RENAME@1"}}}, kRoleBackward);
  p.Op("sum", {{"X", {"w@GRAD@RENAME@0", "w@GRAD@RENAME@1"}}}, {{"Out", {"w@GRAD"}}},
       kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[2], "sum(w@GRAD@RENAME@0, w@GRAD@RENAME@1 -> w@GRAD)");
  EXPECT_EQ(OpTexts(program)[4], "c_allreduce_avg@0(w@GRAD -> w@GRAD)");
  EXPECT_EQ(OpTexts(program).size(), 7);
}

TEST(GradAllReduce, SummandsThatArePairedThemselvesAreNotReduced) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"part"}}}, kRoleBackward).Pairs({"w", "part"});
  p.Op("sum", {{"X", {"part"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(
      OpTexts(program),
      ElementsAre("mul_grad( -> part)", "sum(part -> w@GRAD)", "c_wait_compute@0(w@GRAD -> w@GRAD)",
                  "c_allreduce_avg@0(w@GRAD -> w@GRAD)", "c_wait_comm@0(w@GRAD -> w@GRAD)",
                  "sgd(w, w@GRAD -> w)"));
}

TEST(GradAllReduce, RepeatedPairIsReducedOnceAfterTheLastWrite) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward)
      .Pairs({"w", "w@GRAD", "w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(
      OpTexts(program),
      ElementsAre("mul_grad( -> w@GRAD)", "scale(w@GRAD -> w@GRAD)",
                  "c_wait_compute@0(w@GRAD -> w@GRAD)", "c_allreduce_avg@0(w@GRAD -> w@GRAD)",
                  "c_wait_comm@0(w@GRAD -> w@GRAD)", "sgd(w, w@GRAD -> w)"));
}

TEST(GradAllReduce, PairOnAnEarlierOpThanTheLastWriteFollowsTheData) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[3], "c_allreduce_avg@0(w@GRAD -> w@GRAD)");
}

TEST(GradAllReduce, SecondLossIsReducedAndWaitedForOnItsOwn) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  p.Op("sgd", {{"Param", {"v"}}, {"Grad", {"v@GRAD"}}}, {{"ParamOut", {"v"}}}, kRoleOptimize);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[3], "c_wait_comm@0(v@GRAD -> v@GRAD)");
  EXPECT_EQ(OpTexts(program)[8], "c_wait_comm@0(w@GRAD -> w@GRAD)");
}

TEST(GradAllReduce, VariableWrittenAgainAfterItsUseIsReducedAgain) {
  ProgramBuilder p;
  p.Param("w");
  for (int loss = 0; loss < 2; ++loss) {
    p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
    p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  }
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[2], "c_allreduce_avg@0(w@GRAD -> w@GRAD)");
  EXPECT_EQ(OpTexts(program)[7], "c_allreduce_avg@0(w@GRAD -> w@GRAD)");
}

TEST(GradAllReduce, ClippingStandsBehindTheReduction) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("clip", {{"X", {"w@GRAD"}}}, {{"Out", {"clipped"}}}, kRoleOptimize);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"clipped"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[3], "c_wait_comm@0(w@GRAD -> w@GRAD)");
  EXPECT_EQ(OpTexts(program)[4], "clip(w@GRAD -> clipped)");
}

TEST(GradAllReduce, UseInASubBlockIsWaitedForBeforeTheBlock) {
  ProgramBuilder p;
  p.Param("w").Var("cond");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[3], "c_wait_comm@0(w@GRAD -> w@GRAD)");
  EXPECT_EQ(OpTexts(program)[4], "conditional_block(cond -> )");
}

TEST(GradAllReduce, EmptyGradientsAndDistributedParametersAreLeftAlone) {
  ProgramBuilder p;
  p.Param("w").Param("d").Param("e");
  p.Op("fc_grad", {}, {{"W@GRAD", {"w@GRAD"}}, {"D@GRAD", {"d@GRAD"}}, {"E@GRAD", {"@EMPTY@"}}},
       kRoleBackward);
  p.Pairs({"d", "d@GRAD", "e", "@EMPTY@", "w", "w@GRAD"});
  Program program = p.Build();
  PassContext context = ContextWithRanks(2);
  context.distributed_params = {"d"};
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", context, &program));
  EXPECT_THAT(
      OpTexts(program),
      ElementsAre("fc_grad( -> w@GRAD, d@GRAD, @EMPTY@)", "c_wait_compute@0(w@GRAD -> w@GRAD)",
                  "c_allreduce_avg@0(w@GRAD -> w@GRAD)", "c_wait_comm@0(w@GRAD -> w@GRAD)"));
}

// --- Buckets ------------------------------------------------------------------------------------

constexpr char kTogether[] = "grad-all-reduce{buckets=count}";

TEST(GradAllReduce, BucketIsLaidOutBeforeItsFirstWriteAndReducedAfterItsLast) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(RunPasses(kTogether, ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("coalesce_tensor(b@GRAD, w@GRAD -> fused_gradient_0, b@GRAD, w@GRAD)",
                          "relu_grad(y@GRAD -> b@GRAD)",  //
                          "mul_grad(y@GRAD -> w@GRAD)",
                          "c_wait_compute@0(b@GRAD, w@GRAD, fused_gradient_0 -> b@GRAD, w@GRAD, "
                          "fused_gradient_0)",
                          "c_allreduce_avg@0(fused_gradient_0 -> fused_gradient_0)",
                          "c_wait_comm@0(b@GRAD, w@GRAD, fused_gradient_0 -> b@GRAD, w@GRAD, "
                          "fused_gradient_0)",
                          "sgd(w, w@GRAD -> w)",  //
                          "sgd(b, b@GRAD -> b)"));
  // Two gradients of fp32[2, 2], each padded to 256 bytes.
  const Var buffer = program.var(program.block(0).FindVar(program.FindSymbol("fused_gradient_0")));
  EXPECT_EQ(DeclaredType(buffer), (TensorType{DType::kFloat32, {128}}));
  const Op coalesce = program.op(program.block(0).ops()[0]);
  EXPECT_EQ(coalesce.FindAttr("align_size")->i(), 256);
  EXPECT_FALSE(coalesce.FindAttr("copy_data")->b());
  EXPECT_THAT(coalesce.FindAttr("concated_shapes")->longs(), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(coalesce.FindAttr("concated_ranks")->longs(), ElementsAre(2, 2));
}

TEST(GradAllReduce, GradientThatIsAloneInItsBucketNeedsNoBuffer) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(
      RunPasses("grad-all-reduce{buckets=\"count{count=1}\"}", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[2], "c_allreduce_avg@0(b@GRAD -> b@GRAD)");
}

// v is updated before w's gradient is made: they cannot travel together.
TEST(GradAllReduce, BucketClosesBeforeTheFirstUseOfWhatItHolds) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  p.Op("sgd", {{"Param", {"v"}}, {"Grad", {"v@GRAD"}}}, {{"ParamOut", {"v"}}}, kRoleOptimize);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kTogether, ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[2], "c_allreduce_avg@0(v@GRAD -> v@GRAD)");
  EXPECT_EQ(OpTexts(program)[7], "c_allreduce_avg@0(w@GRAD -> w@GRAD)");
}

TEST(GradAllReduce, BufferBeginsBeforeThePartsThatAreWrittenFirst) {
  ProgramBuilder p;
  p.Param("v").Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  p.Op("scale", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kTogether, ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[0],
            "coalesce_tensor(v@GRAD, w@GRAD -> fused_gradient_0, v@GRAD, w@GRAD)");
}

TEST(GradAllReduce, GradientsThatCannotShareABufferTravelAloneAndSayWhy) {
  ProgramBuilder p;
  p.Param("v").Param("w").Var("v@GRAD", {-1}).Var("w@GRAD", {2});
  p.Op("mul_grad", {}, {{"Y@GRAD", {"v@GRAD"}}}, kRoleBackward).Pairs({"v", "v@GRAD"});
  p.Op("sum", {{"X", {"w@GRAD", "x"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  std::vector<Note> notes;
  PassContext context = ContextWithRanks(2);
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses(kTogether, context, &program));
  EXPECT_THAT(OpTexts(program), Not(Contains(HasSubstr("coalesce_tensor"))));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_EQ(notes[0].details.back(),
            std::make_pair(std::string("alone"), std::string("its shape is not known: [-1]")));
  EXPECT_EQ(notes[1].details.back().second, "its first write reads what was there before");
}

// A buffer for the second gradient in w@GRAD would be laid out while the first is on its way.
TEST(GradAllReduce, VariableThatHoldsSeveralGradientsInTurnIsNotLaidOut) {
  ProgramBuilder p;
  p.Param("w").Param("b");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("mul_grad", {}, {{"Y@GRAD", {"b@GRAD"}}}, kRoleBackward);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  p.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  p.Op("scale", {{"X", {"b@GRAD"}}}, {{"Out", {"b@GRAD"}}}, kRoleBackward).Pairs({"b", "b@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kTogether, ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program), Not(Contains(HasSubstr("coalesce_tensor"))));
}

TEST(GradAllReduce, RingsTakeBucketsInTurn) {
  ProgramBuilder p;
  for (const char* w : {"a", "b", "c", "d"}) {
    const std::string grad = std::string(w) + "@GRAD";
    p.Param(w).Op("mul_grad", {}, {{"Y@GRAD", {grad}}}, kRoleBackward).Pairs({w, grad});
  }
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce{nrings=2,buckets=\"count{count=2}\"}",
                           ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program),
              Contains("c_allreduce_avg@0(fused_gradient_0 -> fused_gradient_0)"));
  EXPECT_THAT(OpTexts(program),
              Contains("c_allreduce_avg@1(fused_gradient_1 -> fused_gradient_1)"));
}

TEST(GradAllReduce, UnknownPolicyIsAnErrorThatListsAll) {
  Program program = TwoGradients().Build();
  EXPECT_THAT(RunPasses("grad-all-reduce{buckets=size}", ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("option buckets: expected none, bytes{first_bytes=N,max_bytes=N}, "
                                 "count{count=N} or paddle_count{count=N}, found 'size'")));
}

// --- Gradient merge -----------------------------------------------------------------------------

// Gradients of w and b are added up; block 1, which runs now and then, uses the sums up.
ProgramBuilder GradientMerge() {
  ProgramBuilder p;
  p.Param("w").Param("b").Var("cond");
  for (const char* name : {"w", "b"}) {
    const std::string w = name, sum = w + "_sum";
    p.Var(sum, {2});
    p.last_var().set_persistable(true);
    p.Op("elementwise_add", {{"X", {w + "@GRAD"}}, {"Y", {sum}}}, {{"Out", {sum}}}, kRoleBackward);
    p.Pairs({w, sum});
  }
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  for (const char* name : {"w", "b"}) {
    const std::string w = name, sum = w + "_sum";
    p.Op("sgd", {{"Param", {w}}, {"Grad", {sum}}}, {{"ParamOut", {w}}}, kRoleOptimize);
    p.Op("fill_constant", {}, {{"Out", {sum}}}, kRoleOptimize);
  }
  return p;
}

TEST(GradAllReduce, AccumulatedGradientsAreReducedOncePerRealUpdate) {
  Program program = GradientMerge().Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program), ElementsAre("elementwise_add(w@GRAD, w_sum -> w_sum)",
                                            "elementwise_add(b@GRAD, b_sum -> b_sum)",
                                            "conditional_block(cond -> )"));
  EXPECT_THAT(
      OpTexts(program, 1),
      ElementsAre("c_wait_compute@0(w_sum, b_sum -> w_sum, b_sum)",
                  "c_allreduce_avg@0(w_sum -> w_sum)", "c_allreduce_avg@0(b_sum -> b_sum)",
                  "c_wait_comm@0(w_sum, b_sum -> w_sum, b_sum)", "sgd(w, w_sum -> w)",
                  "fill_constant( -> w_sum)", "sgd(b, b_sum -> b)", "fill_constant( -> b_sum)"));
}

TEST(GradAllReduce, BucketOfAccumulatedGradientsIsLaidOutWithTheirValues) {
  Program program = GradientMerge().Build();
  WEFT_ASSERT_OK(RunPasses(kTogether, ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program, 1)[0],
            "coalesce_tensor(w_sum, b_sum -> fused_gradient_0, w_sum, b_sum)");
  EXPECT_TRUE(program.op(program.block(1).ops()[0]).FindAttr("copy_data")->b());
  EXPECT_EQ(OpTexts(program, 1)[2], "c_allreduce_avg@0(fused_gradient_0 -> fused_gradient_0)");
}

TEST(GradAllReduce, ReducedGradientsAreRefused) {
  Program program = TwoGradients().Build();
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradients-reduced holds already: op 2 "
                                           "(c_allreduce_avg) takes b@GRAD")));
}

TEST(GradAllReduce, CollectivesOfActivationsAreNoReason) {
  ProgramBuilder p = TwoGradients();
  p.Op("c_allreduce_sum", {{"X", {"hidden"}}}, {{"Out", {"hidden"}}}).IntAttr("ring_id", 3);
  Program program = p.Build();
  WEFT_EXPECT_OK(RunPasses("grad-all-reduce", ContextWithRanks(2), &program));
}

TEST(GradAllReduce, NoGradientsAreRefused) {
  Program program = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(GradAllReduce, OddNumberOfNamesIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (mul_grad): attribute op_role_var: expected pairs of "
                                 "parameter and gradient, found 1 names: w")));
}

TEST(GradAllReduce, SparseGradientsTravelAloneAsRows) {
  ProgramBuilder p = TwoGradients();
  p.Param("e").Var("e@GRAD");
  pb::VarType* type = p.last_var().mutable_type();
  *type->mutable_selected_rows() = type->lod_tensor().tensor();
  type->set_type(pb::VarType::SELECTED_ROWS);
  p.Op("lookup_table_v2_grad", {}, {{"W@GRAD", {"e@GRAD"}}}, kRoleBackward);
  p.Pairs({"e", "e@GRAD"});
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses(kTogether, ContextWithRanks(2), &program));
  EXPECT_THAT(OpTexts(program), Contains("c_allreduce_avg@0(e@GRAD -> e@GRAD)"));
}

TEST(GradAllReduce, IntegerAndAccumulatedGradientsAreRefused) {
  ProgramBuilder integer;
  integer.Param("w").Var("w@GRAD", {2}, pb::VarType::INT32);
  integer.Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  Program program = integer.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("found int32")));

  ProgramBuilder accumulated;
  accumulated.Param("w").Var("sum");
  accumulated.last_var().set_persistable(true);
  accumulated.Op("elementwise_add", {{"X", {"sum"}}}, {{"Out", {"sum"}}}, kRoleBackward)
      .Pairs({"w", "sum"});
  program = accumulated.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("accumulated over several steps")));
}

TEST(GradAllReduce, CompressedGradientIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Op("dgc", {{"Grad", {"w@GRAD"}}}, {{"EncodeGrad", {"e"}}, {"Grad_out", {"w@GRAD"}}},
       kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (dgc) compresses gradient w@GRAD")));
}

TEST(GradAllReduce, UpdateByAGradientThatNobodyNamesIsRefused) {
  ProgramBuilder p = TwoGradients();
  p.Op("sgd", {{"Param", {"lost"}}, {"Grad", {"lost@GRAD"}}}, {{"ParamOut", {"lost"}}},
       kRoleOptimize);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 4 (sgd) input Param: lost is updated")));
}

TEST(GradAllReduce, UpdateByAnOptimizerThatIsNotKnownCountsToo) {
  ProgramBuilder p = TwoGradients();
  p.Op("my_optimizer", {{"Param", {"lost"}}, {"Grad", {"lost@GRAD"}}}, {{"ParamOut", {"lost"}}},
       kRoleOptimize);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 4 (my_optimizer) input Param: lost is updated")));
}

// The sum is what the optimizer uses, but only the parts are named.
TEST(GradAllReduce, UpdateByAGradientOfWhichOnlyPartsAreNamedIsRefused) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("mul_grad", {}, {{"Y@GRAD", {"part"}}}, kRoleBackward).Pairs({"w", "part"});
  p.Op("sum", {{"X", {"part"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 2 (sgd) input Param: w is updated, but gradient "
                                           "part, which op_role_var names, is not reduced: only "
                                           "backward uses it")));
}

TEST(GradAllReduce, GradientInALargerBufferIsRefused) {
  ProgramBuilder p = TwoGradients();
  p.Op("coalesce_tensor", {{"Input", {"w@GRAD"}}},
       {{"Output", {"w@GRAD"}}, {"FusedOutput", {"fused"}}});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("grad-all-reduce", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD: op 4 (coalesce_tensor) makes it share "
                                           "its storage")));
}

TEST(GradAllReduce, NotesSayWhatHappenedToEveryGradient) {
  Program program = TwoGradients().Build();
  std::vector<Note> notes;
  PassContext context = ContextWithRanks(2);
  context.distributed_params = {"b"};
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("grad-all-reduce", context, &program));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_EQ(notes[0].subject, "w@GRAD");
  EXPECT_EQ(notes[0].what, "reduced");
  EXPECT_EQ(notes[1].subject, "b@GRAD");
  EXPECT_EQ(notes[1].what, "not reduced");
  EXPECT_EQ(notes[1].why, "its parameter is distributed");
}

}  // namespace
}  // namespace weft
