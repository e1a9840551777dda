#include "transpiler/passes/setup/comm_init.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(CommInit, EndpointsGiveAnIdAndACommunicatorPerRingAfterTheInitializers) {
  ExpectRewrite("comm-init{nrings=2}", R"(
    startup:
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5}
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171", "127.0.0.1:6172"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=3, rank=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171", "127.0.0.1:6172"], ring_id=1}
  + c_comm_init(X=[nccl_id_1]) {nranks=3, rank=0, ring_id=1}
  )",
                OnEndpoints(3));
}

TEST(CommInit, CpusAreConnectedOutsideOfPrograms) {
  RewriteOptions options = OnRanks(2);
  options.device_kind = TargetDevice::kCpu;
  ExpectNoRewrite("comm-init{nrings=2}", {"", ""}, options);
}

TEST(CommInit, NamesOfIdsThatAreTakenAreSkipped) {
  ExpectRewrite("comm-init{nrings=2}", R"(
    startup:
    var nccl_id_0 : fp32[1]
  + var nccl_id_1, nccl_id_2 : raw persistable stop_gradient
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0}
  + Out=[nccl_id_2] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"], ring_id=1}
  + c_comm_init(X=[nccl_id_2]) {nranks=2, rank=0, ring_id=1}
  )",
                OnEndpoints(2));
}

TEST(CommInit, WithoutEndpointsRingsTakeAllRanksOfTheRun) {
  ExpectRewrite("comm-init{nrings=2}", R"(
    startup:
  + c_comm_init_all() {nranks=4}
  + c_comm_init_all() {nranks=4, ring_id=1}
  )",
                OnRanks(4));
}

RewriteOptions WithGroup(RewriteOptions options, std::vector<int> ranks) {
  options.param_attrs["w"].group = RankGroup{"g", std::move(ranks)};
  options.verification = Verification::kNever;  // there is no training
  return options;
}

TEST(CommInit, GroupsOfRanksGetTheNextRings) {
  const TranspileResult result = ExpectRewrite("comm-init{nrings=2}", R"(
    var w : fp32[1] persistable parameter
    startup:
  + c_comm_init_all() {nranks=4}
  + c_comm_init_all() {nranks=4, ring_id=1}
  + c_comm_init_all() {nranks=4, ring_id=2, group_ranks=ints[0, 2]}
  )",
                                               WithGroup(OnRanks(4), {2, 0}));
  EXPECT_EQ(RemarkTexts(result).back(), "ring 2 set up: over the ranks of group g ranks=0, 2");
}

TEST(CommInit, RingsOfGroupsAreOverTheirEndpoints) {
  ExpectRewrite("comm-init", R"(
    var w : fp32[1] persistable parameter
    startup:
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171", "127.0.0.1:6172"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=3, rank=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6172"], ring_id=1}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1, group_ranks=ints[0, 2]}
  )",
                WithGroup(OnEndpoints(3), {0, 2}));
}

TEST(CommInit, ARankOutsideOfAGroupGetsNoRingForIt) {
  ExpectRewrite("comm-init", R"(
    var w : fp32[1] persistable parameter
    startup:
  + var nccl_id_0 : raw persistable stop_gradient
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171", "127.0.0.1:6172"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=3, rank=0}
  )",
                WithGroup(OnEndpoints(3), {1, 2}));
}

TEST(CommInit, RingsOfGroupsCountAsRings) {
  EXPECT_THAT(RewriteStatus("comm-init{nrings=1024}", {"var w : fp32[1] persistable parameter", ""},
                            WithGroup(OnRanks(4), {0})),
              IsInvalidArgument("expected at most 1024 rings, found 1024 over all ranks and 1"));
}

TEST(CommInit, UnknownNumberOfRanksIsNotWritten) {
  ExpectRewrite("comm-init", R"(
    startup:
  + c_comm_init_all()
  )");
}

TEST(CommInit, TrainersWithSeveralDevicesJoinAsTrainers) {
  ExpectRewrite("comm-init", R"(
    startup:
  + var nccl_id_0 : raw persistable stop_gradient
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init_multitrainer(X=[nccl_id_0]) {devices=ints[0, 1, 2], nranks=6, ntrainers=2, trainer_id=0}
  )",
                OnDevices(2, {0, 1, 2}));
}

TEST(CommInit, DevicesOfTheOnlyTrainerNeedNoId) {
  ExpectRewrite("comm-init", R"(
    startup:
  + c_comm_init_all() {devices=ints[0, 1], nranks=2}
  )",
                OnDevices(1, {0, 1}));
}

TEST(CommInit, RingsOfOtherUsesStay) {
  ExpectRewrite("comm-init{nrings=2}", R"(
    startup:
    c_comm_init_all() {ring_id=7}
  + c_comm_init_all() {nranks=2}
  + c_comm_init_all() {nranks=2, ring_id=1}
  )",
                OnRanks(2));
}

TEST(CommInit, WithoutAStartupProgramNothingChanges) {
  ExpectNoRewrite("comm-init", "", OnEndpoints(2));
}

TEST(CommInit, RingThatIsSetUpAlreadyIsRefused) {
  const absl::Status status = RewriteStatus("comm-init", {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5}
    c_comm_init_all() {nranks=2}
  )"},
                                            OnRanks(2));
  EXPECT_THAT(status, IsFailedPrecondition("op 1 (c_comm_init_all) already sets up ring 0"));
}

TEST(CommInit, TwiceInOnePipelineIsRefusedByContract) {
  EXPECT_THAT(RewriteStatus("comm-init,comm-init", "", OnRanks(2)),
              IsFailedPrecondition("rings-set-up already holds: pass comm-init provides it"));
}

TEST(CommInit, NumbersOfRingsOutOfRangeAreRefused) {
  for (const char* nrings : {"0", "-1", "1025", "99999999999", "two"}) {
    EXPECT_THAT(RewriteStatus(absl::StrCat("comm-init{nrings=", nrings, "}"), "", OnRanks(2)),
                IsInvalidArgument("nrings"));
  }
}

TEST(CommInit, NotesNameTheRings) {
  const TranspileResult result = ExpectRewrite("comm-init{nrings=2}", R"(
    startup:
  + c_comm_init_all() {nranks=2}
  + c_comm_init_all() {nranks=2, ring_id=1}
  )",
                                               OnRanks(2));
  EXPECT_THAT(RemarkTexts(result), ElementsAre("ring 0 set up: over all ranks of the run",
                                               "ring 1 set up: over all ranks of the run"));
  EXPECT_EQ(result.remarks[0].pass, "comm-init");
}

}  // namespace
}  // namespace weft::testing
