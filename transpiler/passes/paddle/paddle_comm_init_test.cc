#include "transpiler/passes/paddle/paddle_comm_init.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
using ::testing::IsEmpty;
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

// Paddle's defect: both ids are for ring 0.
TEST(PaddleCommInit, RanksExchangeAnIdForEachRing) {
  ExpectRewrite("paddle-comm-init{nrings=2}", {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  )"},
                {"", R"(
    var nccl_id_0 : raw persistable stop_gradient
    var nccl_id_1 : raw persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
  )"},
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleCommInit, TrainersWithSeveralDevicesJoinAsTrainers) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-comm-init{over=trainers,nrings=2}", {"", ""}, {"", R"(
    var nccl_id_0 : raw persistable stop_gradient
    var nccl_id_1 : raw persistable stop_gradient
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init_multitrainer(X=[nccl_id_0]) {ntrainers=2, trainer_id=0}
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init_multitrainer(X=[nccl_id_1]) {ntrainers=2, ring_id=1, trainer_id=0}
  )"},
                options);
}

TEST(PaddleCommInit, TrainerAloneSetsUpItsDevicesOnRingZeroOnly) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-comm-init{over=trainers,nrings=2}", {"", ""}, {"", R"(
    c_comm_init_all()
  )"},
                options);
}

TEST(PaddleCommInit, TrainerAloneMayListItsDevices) {
  RewriteOptions options = OnEndpoints(1, Dialect::kPaddle);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("paddle-comm-init{over=trainers,list_devices=true}", {"", ""}, {"", R"(
    c_comm_init_all() {devices=ints[0, 1]}
  )"},
                options);
}

TEST(PaddleCommInit, XpuHasALibraryOfItsOwnAndTakesAllEndpoints) {
  ExpectRewrite("paddle-comm-init{device_kind=xpu}", {"", ""}, {"", R"(
    var bkcl_id_0 : raw persistable stop_gradient
    Out=[bkcl_id_0] = c_gen_bkcl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[bkcl_id_0]) {endpoints="127.0.0.1:6170,127.0.0.1:6171", nranks=2, rank=0}
  )"},
                OnEndpoints(2, Dialect::kPaddle));
}

Program Empty() { return ProgramBuilder().Build(); }
PassContext TwoRanks() { return ContextWithEndpoints(2, Dialect::kPaddle); }
PassContext TwoHosts() { return ContextWithDevices({"10.0.0.1:6170", "10.0.0.2:6170"}, {{0, 1}}); }
PassContext OneHost() { return ContextWithDevices({"10.0.0.1:6170", "10.0.0.1:6171"}, {{0, 1}}); }

absl::Status SetRingsUp(const std::string& options, const PassContext& context, Program* startup) {
  Program main = Empty();
  return RunPasses(absl::StrCat("paddle-comm-init{", options, "}"), context, &main, startup);
}

std::vector<std::string> StartupOps(const std::string& options, const PassContext& context) {
  Program startup = Empty();
  const absl::Status status = SetRingsUp(options, context, &startup);
  return status.ok() ? OpTexts(startup) : std::vector<std::string>{status.ToString()};
}

// An attribute of an op, as text; "-" where there is none.
std::string Value(const Program& program, int op, const std::string& name) {
  const auto attr = program.op(program.block(0).ops()[op]).FindAttr(name);
  if (!attr.has_value()) return "-";
  switch (attr->type()) {
    case pb::INT:
      return absl::StrCat(attr->i());
    case pb::STRING:
      return attr->s();
    case pb::INTS:
      return absl::StrJoin(attr->ints(), ",");
    default:
      return absl::StrJoin(attr->strings(), ",");
  }
}

TEST(PaddleCommInit, OverHostsTrainersOnOneHostAreOne) {
  EXPECT_THAT(StartupOps("over=hosts", OneHost()), ElementsAre("c_comm_init_all@0( -> )"));
  EXPECT_THAT(
      StartupOps("over=hosts", TwoHosts()),
      ElementsAre("c_gen_nccl_id@0( -> nccl_id_0)", "c_comm_init_multitrainer@0(nccl_id_0 -> )"));
}

TEST(PaddleCommInit, XpuAndCustomDevicesUseTheirLibrariesAndAllEndpoints) {
  Program startup = Empty();
  WEFT_ASSERT_OK(SetRingsUp("device_kind=xpu", TwoRanks(), &startup));
  EXPECT_THAT(OpTexts(startup),
              ElementsAre("c_gen_bkcl_id@0( -> bkcl_id_0)", "c_comm_init@0(bkcl_id_0 -> )"));
  EXPECT_EQ(Value(startup, 0, "other_endpoints"), "127.0.0.1:6171");
  EXPECT_EQ(Value(startup, 1, "endpoints"), "127.0.0.1:6170,127.0.0.1:6171");
  EXPECT_THAT(StartupOps("device_kind=custom", TwoRanks()),
              ElementsAre("c_gen_xccl_id@0( -> xccl_id_0)", "c_comm_init@0(xccl_id_0 -> )"));
}

TEST(PaddleCommInit, TrainersOnXpuJoinAsRanks) {
  EXPECT_THAT(StartupOps("over=trainers,device_kind=xpu", TwoHosts()),
              ElementsAre("c_gen_bkcl_id@0( -> bkcl_id_0)", "c_comm_init@0(bkcl_id_0 -> )"));
}

TEST(PaddleCommInit, NamesOfIdsThatAreTakenAreSkipped) {
  Program startup = ProgramBuilder().Var("nccl_id_0").Build();
  WEFT_ASSERT_OK(SetRingsUp("", TwoRanks(), &startup));
  EXPECT_EQ(OpTexts(startup)[0], "c_gen_nccl_id@0( -> nccl_id_1)");
}

TEST(PaddleCommInit, WithoutAStartupProgramNothingChanges) {
  Program main = Empty();
  WEFT_ASSERT_OK(RunPasses("paddle-comm-init", TwoRanks(), &main));
  EXPECT_THAT(OpTexts(main), IsEmpty());
}

TEST(PaddleCommInit, WithoutEndpointsItIsRefused) {
  Program main = Empty();
  PassContext context = ContextWithRanks(2);
  context.dialect = Dialect::kPaddle;
  EXPECT_THAT(RunPasses("paddle-comm-init", context, &main),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the paddle dialect needs the endpoints of all ranks")));
}

TEST(PaddleCommInit, RingThatIsSetUpAlreadyIsRefused) {
  Program startup = Empty();
  WEFT_ASSERT_OK(SetRingsUp("device_kind=xpu", TwoRanks(), &startup));
  EXPECT_THAT(SetRingsUp("", TwoRanks(), &startup),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("op 1 (c_comm_init) already sets up ring 0")));
}

TEST(PaddleCommInit, NotesNameTheRings) {
  Program main = Empty();
  Program startup = Empty();
  std::vector<Remark> remarks;
  PassContext context = TwoRanks();
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses("paddle-comm-init{nrings=2}", context, &main, &startup));
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[1].subject, "ring 1");
  EXPECT_EQ(remarks[1].why, "over the endpoints");
}

}  // namespace
}  // namespace weft
