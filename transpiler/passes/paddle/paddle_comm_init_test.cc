#include "transpiler/passes/paddle/paddle_comm_init.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// Paddle's defect: both ids are for ring 0.
TEST(PaddleCommInit, RanksExchangeAnIdForEachRing) {
  ExpectRewrite("paddle-comm-init{nrings=2}", R"(
    startup:
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleCommInit, TrainersWithSeveralDevicesJoinAsTrainers) {
  ExpectRewrite("paddle-comm-init{over=trainers,nrings=2}", R"(
    startup:
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init_multitrainer(X=[nccl_id_0]) {ntrainers=2, trainer_id=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init_multitrainer(X=[nccl_id_1]) {ntrainers=2, ring_id=1, trainer_id=0}
  )",
                OnDevices(2, {0, 1}, Dialect::kPaddle));
}

TEST(PaddleCommInit, TrainerAloneSetsUpItsDevicesOnRingZeroOnly) {
  ExpectRewrite("paddle-comm-init{over=trainers,nrings=2}", R"(
    startup:
  + c_comm_init_all()
  )",
                OnDevices(1, {0, 1}, Dialect::kPaddle));
}

TEST(PaddleCommInit, TrainerAloneMayListItsDevices) {
  ExpectRewrite("paddle-comm-init{over=trainers,list_devices=true}", R"(
    startup:
  + c_comm_init_all() {devices=ints[0, 1]}
  )",
                OnDevices(1, {0, 1}, Dialect::kPaddle));
}

RewriteOptions OnDeviceKind(TargetDevice kind, RewriteOptions options) {
  options.device_kind = kind;
  return options;
}

TEST(PaddleCommInit, CpusNeedNoSetUp) {
  ExpectNoRewrite("paddle-comm-init", {"", ""},
                  OnDeviceKind(TargetDevice::kCpu, OnEndpoints(2, Dialect::kPaddle)));
}

TEST(PaddleCommInit, OneTrainerOnTheCpuIsRefusedAsPaddleThrows) {
  EXPECT_THAT(
      RewriteStatus("paddle-comm-init{over=trainers}", {"", ""},
                    OnDeviceKind(TargetDevice::kCpu, OnDevices(1, {0, 1}, Dialect::kPaddle))),
      IsUnimplemented("Paddle has no kernel on the CPU for c_comm_init_all"));
}

TEST(PaddleCommInit, XpuHasALibraryOfItsOwnAndTakesAllEndpoints) {
  ExpectRewrite("paddle-comm-init", R"(
    startup:
  + var bkcl_id_0 : raw persistable stop_gradient
  + Out=[bkcl_id_0] = c_gen_bkcl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[bkcl_id_0]) {endpoints="127.0.0.1:6170,127.0.0.1:6171", nranks=2, rank=0}
  )",
                OnDeviceKind(TargetDevice::kXpu, OnEndpoints(2, Dialect::kPaddle)));
}

// Two trainers that drive two devices each, on one host or on two.
RewriteOptions OnHosts(const char* first, const char* second) {
  RewriteOptions options = OnDevices(2, {0, 1}, Dialect::kPaddle);
  options.cluster.endpoints = {first, second};
  return options;
}

TEST(PaddleCommInit, OverHostsTrainersOnOneHostAreOne) {
  ExpectRewrite("paddle-comm-init{over=hosts}", R"(
    startup:
  + c_comm_init_all()
  )",
                OnHosts("10.0.0.1:6170", "10.0.0.1:6171"));
  ExpectRewrite("paddle-comm-init{over=hosts}", R"(
    startup:
  + var nccl_id_0 : raw persistable stop_gradient
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="10.0.0.1:6170", other_endpoints=strings["10.0.0.2:6170"]}
  + c_comm_init_multitrainer(X=[nccl_id_0]) {ntrainers=2, trainer_id=0}
  )",
                OnHosts("10.0.0.1:6170", "10.0.0.2:6170"));
}

TEST(PaddleCommInit, XpuAndCustomDevicesUseTheirLibrariesAndAllEndpoints) {
  const std::pair<TargetDevice, const char*> libraries[] = {{TargetDevice::kXpu, "bkcl"},
                                                            {TargetDevice::kCustom, "xccl"}};
  for (const auto& [kind, library] : libraries) {
    ExpectRewrite("paddle-comm-init", {"", ""},
                  {"", absl::Substitute(R"(
    var $0_id_0 : raw persistable stop_gradient
    Out=[$0_id_0] = c_gen_$0_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[$0_id_0]) {endpoints="127.0.0.1:6170,127.0.0.1:6171", nranks=2, rank=0}
  )",
                                        library)},
                  OnDeviceKind(kind, OnEndpoints(2, Dialect::kPaddle)));
  }
}

TEST(PaddleCommInit, TrainersOnXpuJoinAsRanks) {
  ExpectRewrite("paddle-comm-init{over=trainers}", R"(
    startup:
  + var bkcl_id_0 : raw persistable stop_gradient
  + Out=[bkcl_id_0] = c_gen_bkcl_id() {endpoint="10.0.0.1:6170", other_endpoints=strings["10.0.0.2:6170"]}
  + c_comm_init(X=[bkcl_id_0]) {endpoints="10.0.0.1:6170,10.0.0.2:6170", nranks=2, rank=0}
  )",
                OnDeviceKind(TargetDevice::kXpu, OnHosts("10.0.0.1:6170", "10.0.0.2:6170")));
}

TEST(PaddleCommInit, NamesOfIdsThatAreTakenAreSkipped) {
  ExpectRewrite("paddle-comm-init", R"(
    startup:
    var nccl_id_0 : fp32[1]
  + var nccl_id_1 : raw persistable stop_gradient
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0}
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleCommInit, WithoutAStartupProgramNothingChanges) {
  ExpectNoRewrite("paddle-comm-init", "", OnEndpoints(2, Dialect::kPaddle));
}

TEST(PaddleCommInit, WithoutEndpointsItIsRefused) {
  RewriteOptions options = OnRanks(2);
  options.dialect = Dialect::kPaddle;
  EXPECT_THAT(RewriteStatus("paddle-comm-init", "", options),
              IsInvalidArgument("the paddle dialect needs the endpoints of all ranks"));
}

TEST(PaddleCommInit, RingThatIsSetUpAlreadyIsRefused) {
  const absl::Status status = RewriteStatus("paddle-comm-init", {"", R"(
    var bkcl_id_0 : raw persistable
    Out=[bkcl_id_0] = c_gen_bkcl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"], rank=0}
    c_comm_init(X=[bkcl_id_0]) {nranks=2, rank=0}
  )"},
                                            OnEndpoints(2, Dialect::kPaddle));
  EXPECT_THAT(status, IsFailedPrecondition("op 1 (c_comm_init) already sets up ring 0"));
}

TEST(PaddleCommInit, NotesNameTheRings) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("paddle-comm-init{nrings=2}", R"(
    startup:
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
  )",
                                OnEndpoints(2, Dialect::kPaddle))),
      ElementsAre("ring 0 set up: over the endpoints", "ring 1 set up: over the endpoints"));
}

}  // namespace
}  // namespace weft::testing
