#include "transpiler/passes/paddle/paddle_all_gather.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPass[] = "paddle-all-gather";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// One trainer that drives two devices.
RewriteOptions OnTwoDevices() { return OnDevices(1, {0, 1}, Dialect::kPaddle); }

// Paddle's defect: one update per rank, without a role.
TEST(PaddleAllGather, EveryRanksGradientUpdatesInTurn) {
  ExpectRewrite("paddle-all-gather", R"(
  + var w_0, w_1 : fp32[2, 2] stop_gradient
  + var w_allgather : fp32[4, 2] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  - Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize vars=[w, w@GRAD] {beta1=0.75}
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
  + Out=[w_0, w_1] = split(X=[w_allgather]) {num=2}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_0], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_1], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  )",
                Violating({"W311", "W601", "W602"}, OnTwoDevices()));
}

TEST(PaddleAllGather, RingsAndPairsAreDealtOutWalkingBackwards) {
  ExpectRewrite("paddle-all-gather{nrings=2}", R"(
  + var b1_allgather, w1_allgather, w2_allgather : fp32[4, 2] stop_gradient
    Out=[w2@GRAD] = g2(X=[x]) role=backward vars=[w2, w2@GRAD]
  + Out=[w2@GRAD] = c_sync_calc_stream(X=[w2@GRAD]) role=backward
  + Out=[w2_allgather] = c_allgather(X=[w2@GRAD]) role=backward {nranks=2}
    Out=[w1@GRAD], Bias=[b1@GRAD] = g1(X=[x]) role=backward vars=[w1, w1@GRAD, b1, b1@GRAD]
  + Out=[w1@GRAD] = c_sync_calc_stream(X=[w1@GRAD]) role=backward
  + Out=[b1_allgather] = c_allgather(X=[b1@GRAD]) role=backward {nranks=2, ring_id=1}
  + Out=[w1_allgather] = c_allgather(X=[w1@GRAD]) role=backward {nranks=2}
  )",
                OnTwoDevices());
}

// Paddle's defect: other optimizers than adam go on with the gradient of their own rank.
TEST(PaddleAllGather, OtherOptimizersStay) {
  ExpectRewrite("paddle-all-gather", R"(
  + var w_allgather : fp32[4, 2] stop_gradient
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                Violating({"W310", "W604"}, OnTwoDevices()));
}

// A gradient of dimensions [$0], and the adam that uses it.
constexpr char kAdam[] = R"(
    var w : fp32[$0] parameter persistable
    var m1, m2 : fp32[$0] persistable
    var x : fp32[$0] need_check_feed
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = $1(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize vars=[w, w@GRAD] {$2beta1=0.75}
  )";

std::string Adam(const char* dims, const char* type = "adam", const char* attrs = "") {
  return absl::Substitute(kAdam, dims, type, attrs);
}

constexpr char kOneGradient[] = R"(
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
  )";

TEST(PaddleAllGather, UpdatesKeepPlainAttributesAndLoseTheirRole) {
  ExpectRewrite("paddle-all-gather", R"(
  + var w_0, w_1 : fp32[2, 2] stop_gradient
  + var w_allgather : fp32[4, 2] stop_gradient
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
  - Beta1PowOut=[p1], Beta2PowOut=[p2], MasterParamOut=[master], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], MasterParam=[master], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize vars=[w, w@GRAD] {beta1=0.75, min_row_size_to_use_multithread=long(2000), multi_precision=true}
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
  + Out=[w_0, w_1] = split(X=[w_allgather]) role=forward {num=2}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_0], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) role=forward {beta1=0.75, min_row_size_to_use_multithread=long(2000)}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_1], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) role=forward {beta1=0.75, min_row_size_to_use_multithread=long(2000)}
  )",
                Violating({"W311", "W601", "W602"}, OnTwoDevices()));
}

TEST(PaddleAllGather, NineDevicesUnlessGiven) {
  ExpectRewrite("paddle-all-gather", kOneGradient, R"(
  + var w_allgather : fp32[36, 2] stop_gradient
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=18}
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

// Paddle's defect: what is gathered for it is never written, and yet it updates.
TEST(PaddleAllGather, DistributedParameterIsUpdatedWithoutAGradient) {
  RewriteOptions options = Violating({"W107", "W201"}, OnTwoDevices());
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  options.distributed_params = {"w"};
  ExpectRewrite("paddle-all-gather", Adam("3, 5"), R"(
  + var w_0, w_1 : fp32[1, 3, 5] stop_gradient
  + var w_allgather : fp32[2, 3, 5] stop_gradient
  - Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize vars=[w, w@GRAD] {beta1=0.75}
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
  + Out=[w_0, w_1] = split(X=[w_allgather]) {num=2}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_0], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_1], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  )",
                options);
}

TEST(PaddleAllGather, ScalarGradientsAreGatheredIntoAVector) {
  ExpectRewrite("paddle-all-gather", Adam(""), R"(
  + var w_0, w_1 : fp32[1] stop_gradient
  + var w_allgather : fp32[2] stop_gradient
  - Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize vars=[w, w@GRAD] {beta1=0.75}
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  + Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
  + Out=[w_0, w_1] = split(X=[w_allgather]) {num=2}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_0], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  + Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w_1], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) {beta1=0.75}
  )",  // x of one element is whole on every rank.
                Violating({"W201", "W601", "W602"}, OnTwoDevices()));
}

TEST(PaddleAllGather, LambIsRefused) {
  EXPECT_THAT(RewriteStatus(kPass, Adam("3", "lamb", "weight_decay=0.01, "), OnTwoDevices()),
              StatusIs(kRefused, HasSubstr("op 1 (lamb): lamb cannot update with gathered")));
}

TEST(PaddleAllGather, OneRankIsRefused) {
  EXPECT_THAT(RewriteStatus(kPass, kOneGradient, OnDevices(1, {0}, Dialect::kPaddle)),
              StatusIs(kInvalid, HasSubstr("from 2 ranks or more, found 1")));
  RewriteOptions unknown;
  unknown.dialect = Dialect::kPaddle;
  EXPECT_THAT(RewriteStatus(kPass, kOneGradient, unknown),
              StatusIs(kInvalid, HasSubstr("the number of trainers is unknown")));
}

TEST(PaddleAllGather, ParameterWithTwoPairsIsRefused) {
  EXPECT_THAT(RewriteStatus(kPass, absl::StrCat(kOneGradient, kOneGradient), OnTwoDevices()),
              StatusIs(kInvalid, HasSubstr("parameter w already has another gradient")));
}

TEST(PaddleAllGather, AdamWithoutAGatheredGradientIsRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[v] = adam(Param=[v], Grad=[x], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status,
              StatusIs(kInvalid, HasSubstr("op 1 (adam) updates v, for which no gradient")));
}

TEST(PaddleAllGather, AdamOfOldProgramsWhosePowersAreUpdatedElsewhereIsRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[p1], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("op 1 (adam) output Beta2PowOut: expected a "
                                                   "variable")));
}

TEST(PaddleAllGather, TooManyRowsAreRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    var w : fp32[4611686018427387904] parameter persistable
    Out=[w@GRAD] = g(X=[x]) role=backward vars=[w, w@GRAD]
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("op 0 (g): variable w@GRAD: too many rows for "
                                                   "2 ranks")));
}

TEST(PaddleAllGather, NoGradientsAreRefused) {
  EXPECT_THAT(RewriteStatus(kPass, "Out=[y] = relu(X=[x])", OnTwoDevices()),
              StatusIs(kRefused, HasSubstr("the program has no gradients")));
}

TEST(PaddleAllGather, GatheredGradientsAreRefused) {
  const absl::Status status = RewriteStatus(kPass, R"(
    var w_allgather : fp32[4, 2] stop_gradient
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  )",
                                            OnTwoDevices());
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleAllGather, NotesNameRingAndPlace) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("paddle-all-gather", kOneGradient, R"(
  + var w_allgather : fp32[4, 2] stop_gradient
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
  + Out=[w_allgather] = c_allgather(X=[w@GRAD]) role=backward {nranks=2}
  )",
                                OnTwoDevices())),
      ElementsAre("w@GRAD gathered: gradient of replicated parameter w ring=0 after=op 0 (relu)"));
}

}  // namespace
}  // namespace weft::testing
