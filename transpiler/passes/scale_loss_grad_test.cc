#include "transpiler/passes/scale_loss_grad.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"
#include "transpiler/verify/matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::HasOp;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Backward of one loss: fills its gradient, computes that of w and updates w.
void AddLoss(ProgramBuilder* p, const std::string& loss, const std::string& w,
             int fill_role = kRoleBackward | kRoleLoss) {
  p->Param(w);
  p->Op("fill_constant", {}, {{"Out", {loss + "@GRAD"}}}, fill_role);
  p->Op("mul_grad", {{"Out@GRAD", {loss + "@GRAD"}}}, {{"Y@GRAD", {w + "@GRAD"}}}, kRoleBackward);
  p->Pairs({w, w + "@GRAD"});
  p->Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}}, {{"ParamOut", {w}}}, kRoleOptimize);
}

Program OneLoss(int fill_role = kRoleBackward | kRoleLoss) {
  ProgramBuilder p;
  AddLoss(&p, "loss", "w", fill_role);
  return p.Build();
}

TEST(ScaleLossGrad, GradientOfTheLossIsDividedByTheNumberOfRanks) {
  Program program = OneLoss();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", ContextWithRanks(4), &program));
  EXPECT_THAT(OpTexts(program),
              ElementsAre("fill_constant( -> loss@GRAD)", "scale(loss@GRAD -> loss@GRAD)",
                          "mul_grad(loss@GRAD -> w@GRAD)", "sgd(w, w@GRAD -> w)"));
  EXPECT_THAT(program, HasOp("scale")
                           .WithAttr("scale", 0.25f)
                           .WithAttr("nranks", 4)
                           .WithRole(kRoleBackward)
                           .Times(1));
}

// Paddle's defect: two trainers with two devices each sum four gradients.
TEST(ScaleLossGrad, PaddleDialectDividesByTheNumberOfTrainers) {
  Program program = OneLoss();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad",
                           ContextWithDevices({"10.0.0.1:1", "10.0.0.2:1"}, {{0, 1}}), &program));
  EXPECT_THAT(program, HasOp("scale").WithAttr("scale", 0.5f).Times(1));
}

TEST(ScaleLossGrad, TwoLossesGetTwoScaleOps) {
  ProgramBuilder p;
  AddLoss(&p, "loss0", "v");
  AddLoss(&p, "loss1", "w");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program)[1], "scale(loss0@GRAD -> loss0@GRAD)");
  EXPECT_EQ(OpTexts(program)[5], "scale(loss1@GRAD -> loss1@GRAD)");
  EXPECT_THAT(program, HasOp("scale").Times(2));
  EXPECT_EQ(OpTexts(program).size(), 8);
}

TEST(ScaleLossGrad, UnknownNumberOfRanksLeavesDivisionToTheReduction) {
  Program program = OneLoss();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", ContextWithRanks(0), &program));
  EXPECT_EQ(OpTexts(program).size(), 3);
}

TEST(ScaleLossGrad, ScaleAvgAndNoneChangeNothing) {
  for (const char* pass : {"scale-loss-grad{scale=avg}", "scale-loss-grad{scale=none}"}) {
    Program program = OneLoss();
    WEFT_ASSERT_OK(RunPasses(pass, ContextWithRanks(4), &program));
    EXPECT_EQ(program.revision(), 0);
  }
}

TEST(ScaleLossGrad, DivisionByAnUnknownNumberIsRefused) {
  Program program = OneLoss();
  EXPECT_THAT(RunPasses("scale-loss-grad{scale=loss_grad}", ContextWithRanks(0), &program),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("divides by the number of ranks, which is unknown")));
}

TEST(ScaleLossGrad, UnknownWayToScaleIsAnErrorThatListsAll) {
  Program program = OneLoss();
  EXPECT_THAT(RunPasses("scale-loss-grad{scale=half}", ContextWithRanks(2), &program),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("auto|loss_grad|avg|none")));
}

TEST(ScaleLossGrad, LostLossRoleIsRefused) {
  Program program = OneLoss(kRoleBackward);
  EXPECT_THAT(RunPasses("scale-loss-grad", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 1 (mul_grad), does "
                                           "not come from a loss gradient")));
}

TEST(ScaleLossGrad, LostLossRoleOfOneOfTwoLossesIsRefused) {
  ProgramBuilder p;
  AddLoss(&p, "loss0", "v");
  AddLoss(&p, "loss1", "w", kRoleBackward);
  Program program = p.Build();
  EXPECT_THAT(RunPasses("scale-loss-grad", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 4 (mul_grad)")));
}

// w is shared by two losses, of which one has lost its role: its part would be too large.
TEST(ScaleLossGrad, SumOfDividedAndUndividedPartsIsRefused) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("fill_constant", {}, {{"Out", {"loss0@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.Op("mul_grad", {{"Out@GRAD", {"loss0@GRAD"}}}, {{"Y@GRAD", {"part0"}}}, kRoleBackward);
  p.Op("fill_constant", {}, {{"Out", {"loss1@GRAD"}}}, kRoleBackward);
  p.Op("mul_grad", {{"Out@GRAD", {"loss1@GRAD"}}}, {{"Y@GRAD", {"part1"}}}, kRoleBackward);
  p.Op("sum", {{"X", {"part0", "part1"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(
      RunPasses("scale-loss-grad", ContextWithRanks(2), &program),
      StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 4 (sum), does not come "
                                   "from loss gradients that could all be scaled")));
}

TEST(ScaleLossGrad, ZerosInASumNeedNoScale) {
  ProgramBuilder p;
  p.Param("w");
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.Op("mul_grad", {{"Out@GRAD", {"loss@GRAD"}}}, {{"Y@GRAD", {"part"}}}, kRoleBackward);
  p.Op("fill_constant", {}, {{"Out", {"zeros"}}}, kRoleBackward).FloatAttr("value", 0);
  p.Op("sum", {{"X", {"part", "zeros"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  WEFT_EXPECT_OK(RunPasses("scale-loss-grad", ContextWithRanks(2), &program));
}

// What Paddle gives an output that nobody reads.
TEST(ScaleLossGrad, ZerosInTheShapeOfAnotherVariableNeedNoScale) {
  for (float value : {0.0f, 1.0f}) {
    ProgramBuilder p;
    p.Param("w");
    p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
    p.Op("fill_any_like", {{"X", {"unused"}}}, {{"Out", {"unused@GRAD"}}}, kRoleBackward)
        .FloatAttr("value", value);
    p.Op("concat", {{"X", {"loss@GRAD", "unused@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
    p.Pairs({"w", "w@GRAD"});
    Program program = p.Build();
    EXPECT_EQ(RunPasses("scale-loss-grad", ContextWithRanks(2), &program).ok(), value == 0);
  }
}

// The first gradient in w@GRAD comes from a loss that has lost its role, the second does not.
TEST(ScaleLossGrad, EveryGradientOfAVariableIsLookedAt) {
  ProgramBuilder p;
  p.Param("w");
  for (int role : {kRoleBackward, kRoleBackward | kRoleLoss}) {
    p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, role);
    p.Op("mul_grad", {{"Out@GRAD", {"loss@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
    p.Pairs({"w", "w@GRAD"});
    p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}}, {{"ParamOut", {"w"}}}, kRoleOptimize);
  }
  Program program = p.Build();
  EXPECT_THAT(RunPasses("scale-loss-grad", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 1 (mul_grad)")));
}

TEST(ScaleLossGrad, LossGradientThatIsReplacedBehindTheScaleIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.Op("assign", {{"X", {"given"}}}, {{"Out", {"loss@GRAD"}}}, kRoleBackward);
  p.Op("mul_grad", {{"Out@GRAD", {"loss@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  Program program = p.Build();
  EXPECT_THAT(RunPasses("scale-loss-grad", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 2 (mul_grad), does "
                                           "not come from a loss gradient")));
}

// As Paddle's transpiler: gradients are too large by the number of ranks.
TEST(ScaleLossGrad, LostLossRoleIsAWarningInThePaddleDialect) {
  Program program = OneLoss(kRoleBackward);
  PassContext context = ContextWithEndpoints(2, Dialect::kPaddle);
  std::vector<std::string> warnings;
  context.warnings = &warnings;
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", context, &program));
  EXPECT_EQ(OpTexts(program).size(), 3);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("pass scale-loss-grad: gradient w@GRAD, completed by "
                                              "op 1 (mul_grad), does not come from a loss")));
}

TEST(ScaleLossGrad, PaddleDialectHasNoAttributeThatPaddleDoesNotKnow) {
  Program program = OneLoss();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", ContextWithEndpoints(2, Dialect::kPaddle), &program));
  EXPECT_FALSE(program.op(program.block(0).ops()[1]).HasAttr("nranks"));
}

TEST(ScaleLossGrad, GradientsOfDistributedParametersNeedNoScaledLoss) {
  Program program = OneLoss(kRoleBackward);
  PassContext context = ContextWithRanks(2);
  context.distributed_params = {"w"};
  WEFT_EXPECT_OK(RunPasses("scale-loss-grad", context, &program));
}

TEST(ScaleLossGrad, DividedLossGradientIsNotDividedAgain) {
  Program program = OneLoss();
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", ContextWithRanks(2), &program));
  EXPECT_THAT(RunPasses("scale-loss-grad", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("op 1 (scale) rewrites the loss gradient loss@GRAD in "
                                           "place: it is divided already")));
}

TEST(ScaleLossGrad, DividedLossGradientIsNotAveragedToo) {
  Program program = OneLoss();
  EXPECT_THAT(
      RunPasses("scale-loss-grad,grad-all-reduce{scale=avg}", ContextWithRanks(2), &program),
      StatusIs(kRefused, HasSubstr("pass grad-all-reduce: op 1 (scale) rewrites the loss "
                                   "gradient loss@GRAD in place")));
}

TEST(ScaleLossGrad, AfterTheReductionItIsRefusedByContract) {
  Program program = OneLoss();
  EXPECT_THAT(RunPasses("grad-all-reduce,scale-loss-grad", ContextWithRanks(2), &program),
              StatusIs(kRefused, HasSubstr("pass scale-loss-grad cannot run: gradients-reduced "
                                           "holds already: pass grad-all-reduce provides it")));
}

TEST(ScaleLossGrad, NotesSayByHowMuchAndWhy) {
  Program program = OneLoss();
  std::vector<Note> notes;
  PassContext context = ContextWithRanks(4);
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", context, &program));
  ASSERT_EQ(notes.size(), 1);
  EXPECT_EQ(notes[0].subject, "loss@GRAD");
  EXPECT_THAT(notes[0].details, ElementsAre(std::make_pair("by", "1/4"),
                                            std::make_pair("after", "op 0 (fill_constant)")));
}

}  // namespace
}  // namespace weft
