#include "transpiler/passes/comm_init.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::ContextWithDevices;
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

TEST(CommInit, EndpointsGiveAnIdAndACommunicatorPerRingAfterTheInitializers) {
  ExpectRewrite("comm-init{nrings=2}", {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5}
  )"},
                {"", R"(
    var nccl_id_0 : raw persistable stop_gradient
    var nccl_id_1 : raw persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2]}
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171", "127.0.0.1:6172"]}
    c_comm_init(X=[nccl_id_0]) {nranks=3, rank=0}
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171", "127.0.0.1:6172"], ring_id=1}
    c_comm_init(X=[nccl_id_1]) {nranks=3, rank=0, ring_id=1}
  )"},
                OnEndpoints(3));
}

TEST(CommInit, NamesOfIdsThatAreTakenAreSkipped) {
  ExpectRewrite("comm-init{nrings=2}", {"", R"(
    var nccl_id_0 : fp32[1]
  )"},
                {"", R"(
    var nccl_id_1 : raw persistable stop_gradient
    var nccl_id_2 : raw persistable stop_gradient
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0}
    Out=[nccl_id_2] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"], ring_id=1}
    c_comm_init(X=[nccl_id_2]) {nranks=2, rank=0, ring_id=1}
  )"},
                OnEndpoints(2));
}

TEST(CommInit, WithoutEndpointsRingsTakeAllRanksOfTheRun) {
  ExpectRewrite("comm-init{nrings=2}", {"", ""}, {"", R"(
    c_comm_init_all() {nranks=4}
    c_comm_init_all() {nranks=4, ring_id=1}
  )"},
                OnRanks(4));
}

TEST(CommInit, UnknownNumberOfRanksIsNotWritten) {
  ExpectRewrite("comm-init", {"", ""}, {"", R"(
    c_comm_init_all()
  )"});
}

TEST(CommInit, TrainersWithSeveralDevicesJoinAsTrainers) {
  RewriteOptions options = OnEndpoints(2);
  options.cluster.devices = {{0, 1, 2}};
  ExpectRewrite("comm-init", {"", ""}, {"", R"(
    var nccl_id_0 : raw persistable stop_gradient
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init_multitrainer(X=[nccl_id_0]) {devices=ints[0, 1, 2], nranks=6, ntrainers=2, trainer_id=0}
  )"},
                options);
}

TEST(CommInit, DevicesOfTheOnlyTrainerNeedNoId) {
  RewriteOptions options = OnEndpoints(1);
  options.cluster.devices = {{0, 1}};
  ExpectRewrite("comm-init", {"", ""}, {"", R"(
    c_comm_init_all() {devices=ints[0, 1], nranks=2}
  )"},
                options);
}

TEST(CommInit, RingsOfOtherUsesStay) {
  ExpectRewrite("comm-init{nrings=2}", {"", R"(
    c_comm_init_all() {ring_id=7}
  )"},
                {"", R"(
    c_comm_init_all() {ring_id=7}
    c_comm_init_all() {nranks=2}
    c_comm_init_all() {nranks=2, ring_id=1}
  )"},
                OnRanks(2));
}

Program Empty() { return ProgramBuilder().Build(); }

ProgramBuilder Initializer() {
  ProgramBuilder p;
  p.Param("w").Op("fill_constant", {}, {{"Out", {"w"}}});
  return p;
}

TEST(CommInit, WithoutAStartupProgramNothingChanges) {
  Program main = Empty();
  WEFT_ASSERT_OK(RunPasses("comm-init", ContextWithEndpoints(2), &main));
  EXPECT_THAT(OpTexts(main), IsEmpty());
}

TEST(CommInit, RingThatIsSetUpAlreadyIsRefused) {
  Program main = Empty();
  Program startup = Initializer().Build();
  WEFT_ASSERT_OK(RunPasses("comm-init", ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(RunPasses("comm-init", ContextWithRanks(2), &main, &startup),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("op 1 (c_comm_init_all) already sets up ring 0")));
}

TEST(CommInit, TwiceInOnePipelineIsRefusedByContract) {
  Program main = Empty();
  EXPECT_THAT(RunPasses("comm-init,comm-init", ContextWithRanks(2), &main),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rings-set-up already holds: pass comm-init provides it")));
}

TEST(CommInit, NumbersOfRingsOutOfRangeAreRefused) {
  Program main = Empty();
  for (const char* nrings : {"0", "-1", "1025", "99999999999", "two"}) {
    EXPECT_THAT(
        RunPasses(absl::StrCat("comm-init{nrings=", nrings, "}"), ContextWithRanks(2), &main),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nrings")));
  }
}

TEST(CommInit, NotesNameTheRings) {
  Program main = Empty();
  Program startup = Empty();
  std::vector<Remark> remarks;
  PassContext context = ContextWithRanks(2);
  context.remarks = &remarks;
  WEFT_ASSERT_OK(RunPasses("comm-init{nrings=2}", context, &main, &startup));
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[1].pass, "comm-init");
  EXPECT_EQ(remarks[1].subject, "ring 1");
  EXPECT_EQ(remarks[1].what, "set up");
}

}  // namespace
}  // namespace weft
