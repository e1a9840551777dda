#include "transpiler/passes/paddle/paddle_local_sgd.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPasses[] = "paddle-comm-init{nrings=2},broadcast-params{nrings=2},paddle-local-sgd";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Updates w, then v.
constexpr char kMain[] = R"(
    var v : fp32[3] parameter persistable
    var w : fp32[5, 7] parameter persistable
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
  )";

constexpr char kStartup[] = R"(
    var v : fp32[3] parameter persistable
    var w : fp32[5, 7] parameter persistable
    var b : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[5, 7], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[v] = fill_constant() {shape=longs[3], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )";

// After the passes, on two ranks.
constexpr char kAveraged[] = R"(
    var v@SNAPSHOT : fp32[3] persistable stop_gradient
    var w@SNAPSHOT : fp32[5, 7] persistable stop_gradient
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w]) role=optimize
    Out=[w] = c_sync_calc_stream(X=[w]) role=optimize
    Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=1}
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    Out=[v] = elementwise_sub(X=[v@SNAPSHOT], Y=[v]) role=optimize
    Out=[v] = c_sync_calc_stream(X=[v]) role=optimize
    Out=[v] = c_allreduce_sum(X=[v]) role=optimize
    Out=[w] = c_sync_comm_stream(X=[w]) role=optimize
    Out=[w] = c_sync_comm_stream(X=[w]) role=optimize {ring_id=1}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.5}
    Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w]) role=optimize
    Out=[w@SNAPSHOT] = assign(X=[w]) role=optimize
    Out=[v] = scale(X=[v]) role=optimize {scale=0.5}
    Out=[v] = elementwise_sub(X=[v@SNAPSHOT], Y=[v]) role=optimize
    Out=[v@SNAPSHOT] = assign(X=[v]) role=optimize
  )";
constexpr char kSnapshots[] = R"(
    var b@SNAPSHOT : fp32[2, 2] persistable stop_gradient
    var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
    var v@SNAPSHOT : fp32[3] persistable stop_gradient
    var w@SNAPSHOT : fp32[5, 7] persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[5, 7], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[3], value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], value=0.5}
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
    Out=[w] = c_broadcast(X=[w])
    Out=[b] = c_broadcast(X=[b]) {ring_id=1}
    Out=[v] = c_broadcast(X=[v])
    Out=[v] = c_sync_comm_stream(X=[v])
    Out=[v] = c_sync_comm_stream(X=[v]) {ring_id=1}
    Out=[w@SNAPSHOT] = assign(X=[w])
    Out=[b@SNAPSHOT] = assign(X=[b])
    Out=[v@SNAPSHOT] = assign(X=[v])
  )";

TEST(PaddleLocalSgd, ParametersBecomeTheSnapshotMinusTheMeanOfTheSteps) {
  ExpectRewrite(kPasses, {kMain, kStartup}, {kAveraged, kSnapshots},
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleLocalSgd, DistributedParameterIsNotAveragedButNamedByTheWait) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"w"};
  ExpectRewrite(kPasses, {kMain, kStartup}, R"(
  + var v@SNAPSHOT : fp32[3] persistable stop_gradient
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
  + Out=[v] = elementwise_sub(X=[v@SNAPSHOT], Y=[v]) role=optimize
  + Out=[v] = c_sync_calc_stream(X=[v]) role=optimize
  + Out=[v] = c_allreduce_sum(X=[v]) role=optimize
  + Out=[w] = c_sync_comm_stream(X=[w]) role=optimize
  + Out=[w] = c_sync_comm_stream(X=[w]) role=optimize {ring_id=1}
  + Out=[v] = scale(X=[v]) role=optimize {scale=0.5}
  + Out=[v] = elementwise_sub(X=[v@SNAPSHOT], Y=[v]) role=optimize
  + Out=[v@SNAPSHOT] = assign(X=[v]) role=optimize
    startup:
  + var b@SNAPSHOT : fp32[2, 2] persistable stop_gradient
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
  + var v@SNAPSHOT : fp32[3] persistable stop_gradient
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
  + Out=[b] = c_broadcast(X=[b])
  + Out=[v] = c_broadcast(X=[v]) {ring_id=1}
  + Out=[v] = c_sync_comm_stream(X=[v])
  + Out=[v] = c_sync_comm_stream(X=[v]) {ring_id=1}
  + Out=[b@SNAPSHOT] = assign(X=[b])
  + Out=[v@SNAPSHOT] = assign(X=[v])
  )",
                options);
}

// Paddle's defect: of two updates of a parameter, each is averaged.
TEST(PaddleLocalSgd, ParameterThatIsUpdatedTwiceHasOneSnapshot) {
  ExpectRewrite(kPasses, R"(
  + var w@SNAPSHOT : fp32[2, 2] persistable stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w]) role=optimize
  + Out=[w] = c_sync_calc_stream(X=[w]) role=optimize
  + Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w]) role=optimize
  + Out=[w] = c_sync_calc_stream(X=[w]) role=optimize
  + Out=[w] = c_allreduce_sum(X=[w]) role=optimize
  + Out=[w] = c_sync_comm_stream(X=[w]) role=optimize
  + Out=[w] = c_sync_comm_stream(X=[w]) role=optimize {ring_id=1}
  + Out=[w] = scale(X=[w]) role=optimize {scale=0.25}
  + Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w]) role=optimize
  + Out=[w@SNAPSHOT] = assign(X=[w]) role=optimize
  + Out=[w] = scale(X=[w]) role=optimize {scale=0.25}
  + Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w]) role=optimize
  + Out=[w@SNAPSHOT] = assign(X=[w]) role=optimize
  )",
                Violating({"W401", "W601"}, OnEndpoints(4, Dialect::kPaddle)));
}

TEST(PaddleLocalSgd, WithoutUpdatesInTheRootBlockItIsRefused) {
  const absl::Status status = RewriteStatus(kPasses, R"(
    Out=[y] = mul(X=[x], Y=[w])
    conditional_block(Cond=[due]) {sub_block=block(1)}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[y], LearningRate=[lr]) role=optimize
  )",
                                            OnEndpoints(4, Dialect::kPaddle));
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("no op of the root block updates a parameter")));
}

TEST(PaddleLocalSgd, UpdateOfNoParameterIsRefused) {
  RewriteOptions options = OnEndpoints(4, Dialect::kPaddle);
  options.verification = Verification::kNever;
  EXPECT_THAT(
      RewriteStatus(kPasses, "sgd(Param=[], Grad=[g], LearningRate=[lr]) role=optimize", options),
      IsInvalidArgument("op 0 (sgd) input Param: expected a parameter, found none"));
}

TEST(PaddleLocalSgd, SecondRunIsRefused) {
  EXPECT_THAT(RewriteStatus(kPasses, kAveraged, OnEndpoints(2, Dialect::kPaddle)),
              StatusIs(kRefused, HasSubstr("parameters-averaged already holds: op 3 "
                                           "(c_allreduce_sum) takes w")));
}

TEST(PaddleLocalSgd, SnapshotThatTheStartupProgramHasIsRefused) {
  EXPECT_THAT(RewriteStatus(kPasses, {kMain, absl::StrCat("var w@SNAPSHOT : fp32[5, 7]", kStartup)},
                            OnEndpoints(4, Dialect::kPaddle)),
              StatusIs(kRefused, HasSubstr("startup program: variable w@SNAPSHOT already exists")));
}

TEST(PaddleLocalSgd, UpdateOutsideTheRootBlocksTensorsIsRefused) {
  const absl::Status status = RewriteStatus(kPasses, R"(
    ParamOut=[@EMPTY@] = sgd(Param=[@EMPTY@], Grad=[g], LearningRate=[lr]) role=optimize
  )",
                                            OnEndpoints(4, Dialect::kPaddle));
  EXPECT_THAT(status, IsInvalidArgument("op 0 (sgd): variable @EMPTY@ is not declared"));
}

TEST(PaddleLocalSgd, ReducedGradientsAreRefused) {
  const absl::Status status = RewriteStatus(kPasses, R"(
    Out=[w@GRAD] = relu(X=[x]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                                            OnEndpoints(4, Dialect::kPaddle));
  EXPECT_THAT(status, StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleLocalSgd, SnapshotsFollowTheBroadcastByContract) {
  EXPECT_THAT(RewriteStatus("paddle-local-sgd", kMain, OnEndpoints(4, Dialect::kPaddle)),
              StatusIs(kRefused, HasSubstr("needs parameters-equal")));
}

TEST(PaddleLocalSgd, NotesNameRingAndPlace) {
  const TranspileResult result = ExpectRewrite(kPasses, {kMain, kStartup}, {kAveraged, kSnapshots},
                                               OnEndpoints(2, Dialect::kPaddle));
  EXPECT_THAT(
      RemarkTexts(result),
      ElementsAre("ring 0 set up: over the endpoints", "ring 1 set up: over the endpoints",
                  "w broadcast: all ranks start from the values of rank 0 ring=0",
                  "b broadcast: all ranks start from the values of rank 0 ring=1",
                  "v broadcast: all ranks start from the values of rank 0 ring=0",
                  "v averaged: replicated parameter, after every step ring=0 after=op 1 (sgd)",
                  "w averaged: replicated parameter, after every step ring=1 after=op 0 (sgd)"));
}

}  // namespace
}  // namespace weft::testing
