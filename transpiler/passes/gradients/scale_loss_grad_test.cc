#include "transpiler/passes/gradients/scale_loss_grad.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kOneLoss[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

// Divided for four ranks.
constexpr char kOneLossOver4[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=4, scale=0.25}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[loss@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )";

TEST(ScaleLossGrad, GradientOfTheLossIsDividedByTheNumberOfRanks) {
  ExpectRewrite("scale-loss-grad", kOneLoss, kOneLossOver4, OnRanks(4));
}

// Paddle's defect: two trainers with two devices each sum four gradients.
TEST(ScaleLossGrad, PaddleDialectDividesByTheNumberOfTrainersAndWritesNoAttributeOfItsOwn) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("scale-loss-grad", kOneLoss, R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5}
  )",
                options);
}

TEST(ScaleLossGrad, TwoLossesGetTwoScaleOps) {
  ExpectRewrite("scale-loss-grad", R"(
    Out=[loss0@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss0@GRAD] = scale(X=[loss0@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[loss0@GRAD]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Out=[loss1@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss1@GRAD] = scale(X=[loss1@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss1@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

TEST(ScaleLossGrad, ZerosInASumNeedNoScale) {
  ExpectRewrite("scale-loss-grad", R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[part] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward
    Out=[zeros] = fill_constant() role=backward {shape=longs[2, 2], dtype=5, value=0.0}
    Out=[w@GRAD] = sum(X=[part, zeros]) role=backward vars=[w, w@GRAD]
  )",
                OnRanks(2));
}

// One device adds up the gradients of a sum.
TEST(ScaleLossGrad, TheGradientOfASumBesideThatOfAMeanIsLeft) {
  RewriteOptions options = OnRanks(2);
  const TranspileResult result = ExpectRewrite("scale-loss-grad", R"(
    var x : fp32[-1, 2] need_check_feed
    var y@GRAD : fp32[-1, 2]
    var s : fp32[]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[m] = mean(X=[y]) role=forward|loss
    Out=[s] = reduce_sum(X=[y]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[m@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
  + Out=[m@GRAD] = scale(X=[m@GRAD]) role=backward {nranks=2, scale=0.5}
    Out=[s@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
  )",
                                               options);
  EXPECT_THAT(RemarkTexts(result), Contains(HasSubstr("s@GRAD not scaled: the loss is a sum")));
}

// kOneLoss, whose fill_constant has lost role loss.
constexpr char kLostRole[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(ScaleLossGrad, UnknownNumberOfRanksLeavesDivisionToTheReduction) {
  ExpectNoRewrite("scale-loss-grad", kOneLoss);
}

TEST(ScaleLossGrad, ScaleAvgAndNoneChangeNothing) {
  for (const char* pass : {"scale-loss-grad{scale=avg}", "scale-loss-grad{scale=none}"}) {
    ExpectNoRewrite(pass, kOneLoss, OnRanks(4));
  }
}

TEST(ScaleLossGrad, DivisionByAnUnknownNumberIsRefused) {
  EXPECT_THAT(RewriteStatus("scale-loss-grad{scale=loss_grad}", kOneLoss),
              IsInvalidArgument("divides by the number of ranks, which is unknown"));
}

TEST(ScaleLossGrad, UnknownWayToScaleIsAnErrorThatListsAll) {
  EXPECT_THAT(RewriteStatus("scale-loss-grad{scale=half}", kOneLoss, OnRanks(2)),
              IsInvalidArgument("auto|loss_grad|avg|none"));
}

TEST(ScaleLossGrad, LostLossRoleIsRefused) {
  EXPECT_THAT(RewriteStatus("scale-loss-grad", kLostRole, OnRanks(2)),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 1 (mul_grad), does "
                                           "not come from a loss gradient")));
}

TEST(ScaleLossGrad, LostLossRoleOfOneOfTwoLossesIsRefused) {
  const absl::Status status = RewriteStatus("scale-loss-grad", R"(
    Out=[loss0@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[loss0@GRAD]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
    Out=[loss1@GRAD] = fill_constant() role=backward {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss1@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                                            OnRanks(2));
  EXPECT_THAT(status,
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 4 (mul_grad)")));
}

// Two losses share w, and one of them has lost its role: its part would be too large.
TEST(ScaleLossGrad, SumOfDividedAndUndividedPartsIsRefused) {
  const absl::Status status = RewriteStatus("scale-loss-grad", R"(
    Out=[loss0@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[part0] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss0@GRAD]) role=backward
    Out=[loss1@GRAD] = fill_constant() role=backward {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[part1] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss1@GRAD]) role=backward
    Out=[w@GRAD] = sum(X=[part0, part1]) role=backward vars=[w, w@GRAD]
  )",
                                            OnRanks(2));
  EXPECT_THAT(status,
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 4 (sum), does not "
                                           "come from loss gradients that could all be scaled")));
}

// Paddle gives zeros to an output that no op reads. $0: the value of its gradient.
constexpr char kUnreadOutput[] = R"(
    var w : fp32[4, 2] parameter persistable
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Out=[unused@GRAD] = fill_any_like(X=[unused]) role=backward {value=$0}
    Out=[w@GRAD] = concat(X=[loss@GRAD, unused@GRAD]) role=backward vars=[w, w@GRAD]
  )";

TEST(ScaleLossGrad, ZerosInTheShapeOfAnotherVariableNeedNoScale) {
  ExpectRewrite("scale-loss-grad", absl::Substitute(kUnreadOutput, "0.0"), R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
  + Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
  )",
                OnRanks(2));
  // Earlier versions had an op without a value.
  const std::string zeros = absl::StrReplaceAll(
      kUnreadOutput, {{"fill_any_like", "fill_zeros_like"}, {" {value=$0}", ""}});
  EXPECT_THAT(RewriteStatus("scale-loss-grad", zeros, OnRanks(2)), IsOk());
  EXPECT_THAT(RewriteStatus("scale-loss-grad", absl::Substitute(kUnreadOutput, "1.0"), OnRanks(2)),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 2 (concat), does not "
                                           "come from loss gradients that could all be scaled")));
}

// A gradient op reads values of the forward pass, too.
TEST(ScaleLossGrad, GradientsOfZerosAreZero) {
  constexpr char kTwoReaders[] = R"(
    var w : fp32[2, 2] parameter persistable
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[part0] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward
    Out=[unused@GRAD] = fill_any_like(X=[unused]) role=backward {value=$0}
    X@GRAD=[part1] = relu_grad(Out=[w], Out@GRAD=[unused@GRAD]) role=backward
    Out=[w@GRAD] = sum(X=[part0, part1]) role=backward vars=[w, w@GRAD]
  )";
  EXPECT_THAT(RewriteStatus("scale-loss-grad", absl::Substitute(kTwoReaders, "0.0"), OnRanks(2)),
              IsOk());
  EXPECT_THAT(RewriteStatus("scale-loss-grad", absl::Substitute(kTwoReaders, "1.0"), OnRanks(2)),
              StatusIs(kRefused, HasSubstr("not all ops that start backward")));
}

// The first gradient in w@GRAD comes from a loss that has lost its role, the second does not.
TEST(ScaleLossGrad, EveryGradientOfAVariableIsLookedAt) {
  EXPECT_THAT(RewriteStatus("scale-loss-grad", absl::StrCat(kLostRole, kOneLoss), OnRanks(2)),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 1 (mul_grad)")));
}

TEST(ScaleLossGrad, LossGradientReplacedAfterTheScaleIsRefused) {
  const absl::Status status = RewriteStatus("scale-loss-grad", R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Out=[loss@GRAD] = assign(X=[given]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  )",
                                            OnRanks(2));
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("gradient w@GRAD, completed by op 2 (mul_grad), "
                                                   "does not come from a loss gradient")));
}

// As Paddle's transpiler: gradients are too large by the number of ranks.
TEST(ScaleLossGrad, LostLossRoleIsAWarningInThePaddleDialect) {
  EXPECT_THAT(
      testing::DefectLines(
          ExpectNoRewrite("scale-loss-grad", kLostRole, OnEndpoints(2, Dialect::kPaddle)).messages),
      ElementsAre(HasSubstr("pass scale-loss-grad: gradient w@GRAD, completed by op 1 (mul_grad), "
                            "does not come from a loss")));
}

TEST(ScaleLossGrad, GradientsOfDistributedParametersNeedNoScaledLoss) {
  RewriteOptions options = OnRanks(2);
  options.distributed_params = {"w"};
  ExpectNoRewrite("scale-loss-grad", kLostRole, options);
}

TEST(ScaleLossGrad, NotesSayByHowMuchAndWhy) {
  EXPECT_THAT(RemarkTexts(ExpectRewrite("scale-loss-grad", kOneLoss, kOneLossOver4, OnRanks(4))),
              ElementsAre("loss@GRAD scaled: so that the sum over 4 ranks is the gradient of the "
                          "mean loss by=1/4 after=op 0 (fill_constant)"));
}

TEST(ScaleLossGrad, DividedLossGradientIsNotDividedAgain) {
  const absl::Status status = RewriteStatus("scale-loss-grad", R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {nranks=2, scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
  )",
                                            OnRanks(2));
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("op 1 (scale) rewrites the loss gradient "
                                                   "loss@GRAD in place: it is already divided")));
}

TEST(ScaleLossGrad, DividedLossGradientIsNotAveragedToo) {
  EXPECT_THAT(RewriteStatus("scale-loss-grad,grad-all-reduce{scale=avg}", kOneLoss, OnRanks(2)),
              StatusIs(kRefused, HasSubstr("pass grad-all-reduce: op 1 (scale) rewrites the loss "
                                           "gradient loss@GRAD in place")));
}

TEST(ScaleLossGrad, AfterTheReductionItIsRefusedByContract) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce,scale-loss-grad", kOneLoss, OnRanks(2)),
              StatusIs(kRefused, HasSubstr("pass scale-loss-grad cannot run: gradients-reduced "
                                           "already holds: pass grad-all-reduce provides it")));
}

}  // namespace
}  // namespace weft::testing
