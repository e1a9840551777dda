#include "transpiler/passes/comm_init.h"

#include <string>
#include <utility>
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

PassContext Devices(const std::vector<std::string>& endpoints, std::vector<int> devices) {
  PassContext context = ContextWithDevices(endpoints, std::move(devices));
  context.dialect = Dialect::kWeft;
  return context;
}

Program Empty() { return ProgramBuilder().Build(); }

ProgramBuilder Initializer() {
  ProgramBuilder p;
  p.Param("w").Op("fill_constant", {}, {{"Out", {"w"}}});
  return p;
}

// The values of an attribute over the ops of a type, in order; "-" where one does not have it.
std::vector<std::string> Values(const Program& program, const std::string& type,
                                const std::string& attr) {
  std::vector<std::string> values;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() != type) continue;
    const auto found = op.FindAttr(attr);
    if (!found.has_value()) {
      values.push_back("-");
    } else if (found->type() == pb::INT) {
      values.push_back(absl::StrCat(found->i()));
    } else if (found->type() == pb::STRING) {
      values.push_back(found->s());
    } else {
      values.push_back(absl::StrJoin(found->strings(), ","));
    }
  }
  return values;
}

TEST(CommInit, EndpointsGiveAnIdAndACommunicatorPerRingAfterTheInitializers) {
  Program main = Empty();
  Program startup = Initializer().Build();
  WEFT_ASSERT_OK(RunPasses("comm-init{nrings=2}", ContextWithEndpoints(3), &main, &startup));
  EXPECT_THAT(OpTexts(startup),
              ElementsAre("fill_constant( -> w)",            //
                          "c_gen_nccl_id@0( -> nccl_id_0)",  //
                          "c_comm_init@0(nccl_id_0 -> )",    //
                          "c_gen_nccl_id@1( -> nccl_id_1)",  //
                          "c_comm_init@1(nccl_id_1 -> )"));
  EXPECT_THAT(Values(startup, "c_gen_nccl_id", "endpoint"),
              ElementsAre("127.0.0.1:6170", "127.0.0.1:6170"));
  EXPECT_THAT(Values(startup, "c_gen_nccl_id", "other_endpoints"),
              ElementsAre("127.0.0.1:6171,127.0.0.1:6172", "127.0.0.1:6171,127.0.0.1:6172"));
  EXPECT_THAT(Values(startup, "c_comm_init", "nranks"), ElementsAre("3", "3"));
  EXPECT_THAT(Values(startup, "c_comm_init", "rank"), ElementsAre("0", "0"));
}

TEST(CommInit, IdsArePersistentRawVariables) {
  Program main = Empty();
  Program startup = Empty();
  WEFT_ASSERT_OK(RunPasses("comm-init", ContextWithEndpoints(2), &main, &startup));
  ASSERT_EQ(startup.block(0).vars().size(), 1);
  const Var var = startup.var(startup.block(0).vars()[0]);
  EXPECT_EQ(var.name(), "nccl_id_0");
  EXPECT_EQ(var.type(), pb::VarType::RAW);
  EXPECT_TRUE(var.persistable());
  EXPECT_TRUE(var.stop_gradient());
}

TEST(CommInit, NamesOfIdsThatAreTakenAreSkipped) {
  Program main = Empty();
  Program startup = ProgramBuilder().Var("nccl_id_0").Build();
  WEFT_ASSERT_OK(RunPasses("comm-init{nrings=2}", ContextWithEndpoints(2), &main, &startup));
  EXPECT_EQ(OpTexts(startup)[0], "c_gen_nccl_id@0( -> nccl_id_1)");
  EXPECT_EQ(OpTexts(startup)[2], "c_gen_nccl_id@1( -> nccl_id_2)");
}

TEST(CommInit, WithoutEndpointsRingsTakeAllRanksOfTheRun) {
  Program main = Empty();
  Program startup = Empty();
  WEFT_ASSERT_OK(RunPasses("comm-init{nrings=2}", ContextWithRanks(4), &main, &startup));
  EXPECT_THAT(OpTexts(startup), ElementsAre("c_comm_init_all@0( -> )", "c_comm_init_all@1( -> )"));
  EXPECT_THAT(Values(startup, "c_comm_init_all", "nranks"), ElementsAre("4", "4"));
}

TEST(CommInit, UnknownNumberOfRanksIsNotWritten) {
  Program main = Empty();
  Program startup = Empty();
  WEFT_ASSERT_OK(RunPasses("comm-init", ContextWithRanks(0), &main, &startup));
  EXPECT_THAT(Values(startup, "c_comm_init_all", "nranks"), ElementsAre("-"));
}

TEST(CommInit, TrainersWithSeveralDevicesJoinAsTrainers) {
  Program main = Empty();
  Program startup = Empty();
  WEFT_ASSERT_OK(RunPasses("comm-init", Devices({"a:1", "b:1"}, {0, 1, 2}), &main, &startup));
  EXPECT_THAT(OpTexts(startup), ElementsAre("c_gen_nccl_id@0( -> nccl_id_0)",
                                            "c_comm_init_multitrainer@0(nccl_id_0 -> )"));
  EXPECT_THAT(Values(startup, "c_comm_init_multitrainer", "ntrainers"), ElementsAre("2"));
  EXPECT_THAT(Values(startup, "c_comm_init_multitrainer", "nranks"), ElementsAre("6"));
}

TEST(CommInit, DevicesOfTheOnlyTrainerNeedNoId) {
  Program main = Empty();
  Program startup = Empty();
  WEFT_ASSERT_OK(RunPasses("comm-init", Devices({"a:1"}, {0, 1}), &main, &startup));
  EXPECT_THAT(OpTexts(startup), ElementsAre("c_comm_init_all@0( -> )"));
  EXPECT_THAT(Values(startup, "c_comm_init_all", "nranks"), ElementsAre("2"));
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
                       HasSubstr("op 1 (c_comm_init_all): sets ring 0 up already")));
}

TEST(CommInit, RingsOfOtherUsesStay) {
  Program main = Empty();
  Program startup = ProgramBuilder().Op("c_comm_init_all", {}, {}).IntAttr("ring_id", 7).Build();
  WEFT_ASSERT_OK(RunPasses("comm-init{nrings=2}", ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(OpTexts(startup), ElementsAre("c_comm_init_all@7( -> )", "c_comm_init_all@0( -> )",
                                            "c_comm_init_all@1( -> )"));
}

TEST(CommInit, TwiceInOnePipelineIsRefusedByContract) {
  Program main = Empty();
  EXPECT_THAT(RunPasses("comm-init,comm-init", ContextWithRanks(2), &main),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rings-set-up holds already: pass comm-init provides it")));
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
  std::vector<Note> notes;
  PassContext context = ContextWithRanks(2);
  context.notes = &notes;
  WEFT_ASSERT_OK(RunPasses("comm-init{nrings=2}", context, &main, &startup));
  ASSERT_EQ(notes.size(), 2);
  EXPECT_EQ(notes[1].pass, "comm-init");
  EXPECT_EQ(notes[1].subject, "ring 1");
  EXPECT_EQ(notes[1].what, "set up");
}

}  // namespace
}  // namespace weft
