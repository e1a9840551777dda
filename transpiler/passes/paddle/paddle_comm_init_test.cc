#include "transpiler/passes/paddle/paddle_comm_init.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::ContextWithDevices;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

Program Empty() { return ProgramBuilder().Build(); }
PassContext TwoRanks() { return ContextWithEndpoints(2, Dialect::kPaddle); }
PassContext TwoHosts() { return ContextWithDevices({"10.0.0.1:6170", "10.0.0.2:6170"}, {{0, 1}}); }
PassContext OneHost() { return ContextWithDevices({"10.0.0.1:6170", "10.0.0.1:6171"}, {{0, 1}}); }
PassContext OneTrainer() { return ContextWithDevices({"10.0.0.1:6170"}, {{0, 1}}); }

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

TEST(PaddleCommInit, RanksExchangeAnIdForEachRing) {
  Program startup = ProgramBuilder().Op("fill_constant", {}, {{"Out", {"w"}}}).Build();
  WEFT_ASSERT_OK(SetRingsUp("nrings=2", TwoRanks(), &startup));
  EXPECT_THAT(OpTexts(startup),
              ElementsAre("fill_constant( -> w)",            //
                          "c_gen_nccl_id@0( -> nccl_id_0)",  //
                          "c_comm_init@0(nccl_id_0 -> )",    //
                          "c_gen_nccl_id@0( -> nccl_id_1)",  // Paddle's defect: ring 0 again
                          "c_comm_init@1(nccl_id_1 -> )"));
  EXPECT_EQ(Value(startup, 1, "endpoint"), "127.0.0.1:6170");
  EXPECT_EQ(Value(startup, 1, "other_endpoints"), "127.0.0.1:6171");
  EXPECT_EQ(Value(startup, 2, "nranks"), "2");
  EXPECT_EQ(Value(startup, 2, "rank"), "0");
  EXPECT_EQ(Value(startup, 2, "endpoints"), "");
  EXPECT_EQ(Value(startup, 2, "device_id"), "-1");
}

TEST(PaddleCommInit, TrainersWithSeveralDevicesJoinAsTrainers) {
  Program startup = Empty();
  WEFT_ASSERT_OK(SetRingsUp("over=trainers,nrings=2", OneHost(), &startup));
  EXPECT_THAT(
      OpTexts(startup),
      ElementsAre("c_gen_nccl_id@0( -> nccl_id_0)", "c_comm_init_multitrainer@0(nccl_id_0 -> )",
                  "c_gen_nccl_id@0( -> nccl_id_1)", "c_comm_init_multitrainer@1(nccl_id_1 -> )"));
  EXPECT_EQ(Value(startup, 1, "ntrainers"), "2");
  EXPECT_EQ(Value(startup, 1, "trainer_id"), "0");
}

TEST(PaddleCommInit, TrainerAloneSetsUpItsDevicesOnRingZeroOnly) {
  EXPECT_THAT(StartupOps("over=trainers,nrings=2", OneTrainer()),
              ElementsAre("c_comm_init_all@0( -> )"));
}

TEST(PaddleCommInit, TrainerAloneMayListItsDevices) {
  Program startup = Empty();
  WEFT_ASSERT_OK(SetRingsUp("over=trainers,list_devices=true", OneTrainer(), &startup));
  EXPECT_EQ(Value(startup, 0, "devices"), "0,1");
  EXPECT_THAT(SetRingsUp("list_devices=true", TwoRanks(), &startup),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the devices of each trainer are not given")));
}

TEST(PaddleCommInit, OverHostsTrainersOnOneHostAreOne) {
  EXPECT_THAT(StartupOps("over=hosts", OneHost()), ElementsAre("c_comm_init_all@0( -> )"));
  EXPECT_THAT(
      StartupOps("over=hosts", TwoHosts()),
      ElementsAre("c_gen_nccl_id@0( -> nccl_id_0)", "c_comm_init_multitrainer@0(nccl_id_0 -> )"));
}

TEST(PaddleCommInit, XpuAndCustomDevicesHaveLibrariesOfTheirOwnAndTakeAllEndpoints) {
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
                       HasSubstr("op 1 (c_comm_init): sets ring 0 up already")));
}

TEST(PaddleCommInit, NotesNameTheRings) {
  Program main = Empty();
  Program startup = Empty();
  std::vector<Note> notes;
  PassContext context = TwoRanks();
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("paddle-comm-init{nrings=2}", context, &main, &startup));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_EQ(notes[1].subject, "ring 1");
  EXPECT_EQ(notes[1].why, "over the endpoints");
}

}  // namespace
}  // namespace weft
