#include "transpiler/passes/scale_loss_grad.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OnRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kOneLoss[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(ScaleLossGrad, GradientOfTheLossIsDividedByTheNumberOfRanks) {
  ExpectRewrite("scale-loss-grad", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=4, scale=0.25}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(4));
}

// Paddle's defect: two trainers with two devices each sum four gradients.
TEST(ScaleLossGrad, PaddleDialectDividesByTheNumberOfTrainersAndWritesNoAttributeOfItsOwn) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("scale-loss-grad", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                options);
}

TEST(ScaleLossGrad, TwoLossesGetTwoScaleOps) {
  ExpectRewrite("scale-loss-grad", R"(
    Out=[loss0@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[loss0@GRAD]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Out=[loss1@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss1@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                R"(
    Out=[loss0@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss0@GRAD] = scale(X=[loss0@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[v@GRAD] = mul_grad(Out@GRAD=[loss0@GRAD], X=[x], Y=[v]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    Out=[loss1@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss1@GRAD] = scale(X=[loss1@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss1@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )",
                OnRanks(2));
}

TEST(ScaleLossGrad, ZerosInASumNeedNoScale) {
  ExpectRewrite("scale-loss-grad", R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[part] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward
    Out=[zeros] = fill_constant() role=backward {shape=longs[2, 2], dtype=5, value=0.0}
    Out=[w@GRAD] = sum(X=[part, zeros]) role=backward vars=[w, w@GRAD]
  )",
                R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[part] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward
    Out=[zeros] = fill_constant() role=backward {shape=longs[2, 2]}
    Out=[w@GRAD] = sum(X=[part, zeros]) role=backward vars=[w, w@GRAD]
  )",
                OnRanks(2));
}

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

TEST(ScaleLossGrad, LossGradientReplacedAfterTheScaleIsRefused) {
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
                                           "place: it is already divided")));
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
                                           "already holds: pass grad-all-reduce provides it")));
}

TEST(ScaleLossGrad, NotesSayByHowMuchAndWhy) {
  Program program = OneLoss();
  std::vector<Remark> remarks;
  PassContext context = ContextWithRanks(4);
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses("scale-loss-grad", context, &program));
  ASSERT_EQ(remarks.size(), 1);
  EXPECT_EQ(remarks[0].subject, "loss@GRAD");
  EXPECT_THAT(remarks[0].details, ElementsAre(std::make_pair("by", "1/4"),
                                              std::make_pair("after", "op 0 (fill_constant)")));
}

}  // namespace
}  // namespace weft
