#include "transpiler/passes/paddle/paddle_local_sgd.h"

#include <string>
#include <utility>
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
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kPasses[] = "paddle-comm-init{nrings=2},broadcast-params{nrings=2},paddle-local-sgd";
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Updates w, then v.
constexpr char kMain[] = R"(
    var v : fp32[3] parameter persistable
    var w : fp32[5, 7] parameter persistable
    var v@GRAD : fp32[3] need_check_feed
    var w@GRAD : fp32[5, 7] need_check_feed
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

TEST(PaddleLocalSgd, ParametersBecomeTheSnapshotMinusTheMeanOfTheSteps) {
  ExpectRewrite("paddle-comm-init{nrings=2},broadcast-params{nrings=2},paddle-local-sgd",
                {kMain, kStartup},
                {R"(
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
  )",
                 R"(
    var b@SNAPSHOT : fp32[2, 2] persistable stop_gradient
    var nccl_id_0 : raw persistable stop_gradient
    var nccl_id_1 : raw persistable stop_gradient
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
  )"},
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleLocalSgd, DistributedParameterIsNotAveragedButNamedByTheWait) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"w"};
  ExpectRewrite("paddle-comm-init{nrings=2},broadcast-params{nrings=2},paddle-local-sgd",
                {kMain, kStartup},
                {R"(
    var v@SNAPSHOT : fp32[3] persistable stop_gradient
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    ParamOut=[v] = sgd(Grad=[v@GRAD], LearningRate=[lr], Param=[v]) role=optimize
    Out=[v] = elementwise_sub(X=[v@SNAPSHOT], Y=[v]) role=optimize
    Out=[v] = c_sync_calc_stream(X=[v]) role=optimize
    Out=[v] = c_allreduce_sum(X=[v]) role=optimize
    Out=[w] = c_sync_comm_stream(X=[w]) role=optimize
    Out=[w] = c_sync_comm_stream(X=[w]) role=optimize {ring_id=1}
    Out=[v] = scale(X=[v]) role=optimize {scale=0.5}
    Out=[v] = elementwise_sub(X=[v@SNAPSHOT], Y=[v]) role=optimize
    Out=[v@SNAPSHOT] = assign(X=[v]) role=optimize
  )",
                 R"(
    var b@SNAPSHOT : fp32[2, 2] persistable stop_gradient
    var nccl_id_0 : raw persistable stop_gradient
    var nccl_id_1 : raw persistable stop_gradient
    var v@SNAPSHOT : fp32[3] persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[5, 7], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[3], value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], value=0.5}
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
    Out=[b] = c_broadcast(X=[b])
    Out=[v] = c_broadcast(X=[v]) {ring_id=1}
    Out=[v] = c_sync_comm_stream(X=[v])
    Out=[v] = c_sync_comm_stream(X=[v]) {ring_id=1}
    Out=[b@SNAPSHOT] = assign(X=[b])
    Out=[v@SNAPSHOT] = assign(X=[v])
  )"},
                options);
}

PassContext Paddle() { return ContextWithEndpoints(4, Dialect::kPaddle); }

void AddSgd(ProgramBuilder* p, const std::string& w) {
  p->Op("sgd", {{"Param", {w}}, {"Grad", {w + "@GRAD"}}, {"LearningRate", {"lr"}}},
        {{"ParamOut", {w}}}, kRoleOptimize);
}

// Updates w, then v; b has no update.
Program Main() {
  ProgramBuilder p;
  p.Param("v", {3}).Param("w", {5, 7}).Param("b");
  AddSgd(&p, "w");
  AddSgd(&p, "v");
  return p.Build();
}

// Paddle's defect: of two updates of a parameter, each is averaged.
TEST(PaddleLocalSgd, ParameterThatIsUpdatedTwiceHasOneSnapshot) {
  ProgramBuilder p;
  p.Param("w");
  AddSgd(&p, "w");
  AddSgd(&p, "w");
  Program main = p.Build();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main));
  EXPECT_EQ(OpTexts(main).size(), 2 + 2 * 3 + 2 + 2 * 3);
}

TEST(PaddleLocalSgd, WithoutUpdatesInTheRootBlockItIsRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul", {{"Param", {"w"}}}, {{"Out", {"y"}}});
  p.NewBlock();
  AddSgd(&p, "w");
  p.InBlock(0).Op("conditional_block", {}, {}).BlockAttr("sub_block", 1);
  Program main = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(kRefused, HasSubstr("no op of the root block updates a parameter")));
}

TEST(PaddleLocalSgd, UpdateOfNoParameterIsRefused) {
  ProgramBuilder p;
  p.Op("sgd", {{"Param", {}}, {"Grad", {"g"}}, {"LearningRate", {"lr"}}}, {}, kRoleOptimize);
  Program main = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (sgd) input Param: expected a parameter, found none")));
}

TEST(PaddleLocalSgd, SecondRunIsRefused) {
  Program main = Main();
  WEFT_ASSERT_OK(RunPasses(kPasses, Paddle(), &main));
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(kRefused, HasSubstr("parameters-averaged already holds: op 3 "
                                           "(c_allreduce_sum) takes w")));
}

TEST(PaddleLocalSgd, SnapshotThatTheStartupProgramHasIsRefused) {
  Program main = Main();
  ProgramBuilder p;
  p.Param("v", {3}).Param("w", {5, 7}).Param("b").Var("w@SNAPSHOT");
  Program startup = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main, &startup),
              StatusIs(kRefused, HasSubstr("startup program: variable w@SNAPSHOT already exists")));
}

TEST(PaddleLocalSgd, UpdateOutsideTheRootBlocksTensorsIsRefused) {
  ProgramBuilder p;
  p.Var("w");
  AddSgd(&p, "@EMPTY@");
  Program main = p.Build();
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (sgd): variable @EMPTY@ is not declared")));
}

TEST(PaddleLocalSgd, ReducedGradientsAreRefused) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w");
  Program main = p.Build();
  WEFT_ASSERT_OK(RunPasses("paddle-grad-all-reduce", Paddle(), &main));
  EXPECT_THAT(RunPasses(kPasses, Paddle(), &main),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
}

TEST(PaddleLocalSgd, SnapshotsFollowTheBroadcastByContract) {
  Program main = Main();
  EXPECT_THAT(RunPasses("paddle-local-sgd", Paddle(), &main),
              StatusIs(kRefused, HasSubstr("needs parameters-equal")));
}

TEST(PaddleLocalSgd, NotesNameRingAndPlace) {
  Program main = Main();
  std::vector<Remark> remarks;
  PassContext context = Paddle();
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses(kPasses, context, &main));
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[0].subject, "v");
  EXPECT_EQ(remarks[0].what, "averaged");
  EXPECT_THAT(remarks[0].details,
              ElementsAre(std::make_pair("ring", "0"), std::make_pair("after", "op 1 (sgd)")));
}

}  // namespace
}  // namespace weft
