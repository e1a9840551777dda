#include "transpiler/passes/broadcast_params.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"
#include "transpiler/verify/matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ContextWithEndpoints;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::HasNoRaces;
using ::weft::testing::HasOp;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kOneRing[] = "comm-init,broadcast-params";
constexpr char kTwoRings[] = "comm-init{nrings=2},broadcast-params{nrings=2}";

// Parameters b, v, w are declared by name and initialized as w, b, v.
ProgramBuilder Startup() {
  ProgramBuilder p;
  p.Param("b").Param("v").Param("w");
  p.Op("uniform_random", {}, {{"Out", {"w"}}});
  p.Op("fill_constant", {}, {{"Out", {"b"}}});
  p.Op("fill_constant", {}, {{"Out", {"v"}}});
  return p;
}

Program Main() { return ProgramBuilder().Param("b").Param("v").Param("w").Build(); }

// The texts of the ops from the first that sets a ring up, without those that do.
std::vector<std::string> Inserted(const Program& startup) {
  std::vector<std::string> texts;
  bool inserted = false;
  for (const std::string& text : OpTexts(startup)) {
    const bool sets_up = text.rfind("c_comm_init", 0) == 0 || text.rfind("c_gen", 0) == 0;
    inserted |= sets_up;
    if (inserted && !sets_up) texts.push_back(text);
  }
  return texts;
}

TEST(BroadcastParams, ParametersComeInTheOrderOfTheirInitializersBetweenWaits) {
  Program main = Main();
  Program startup = Startup().Build();
  WEFT_ASSERT_OK(RunPasses(kOneRing, ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(Inserted(startup),
              ElementsAre("c_wait_compute@0(w, b, v -> w, b, v)",  //
                          "c_broadcast@0(w -> w)",                 //
                          "c_broadcast@0(b -> b)",                 //
                          "c_broadcast@0(v -> v)",                 //
                          "c_wait_comm@0(w, b, v -> w, b, v)"));
  EXPECT_THAT(startup, HasOp("c_broadcast").WithAttr("root", 0).Times(3));
  EXPECT_THAT(startup, HasNoRaces());
}

TEST(BroadcastParams, RingsTakeTurns) {
  Program main = Main();
  Program startup = Startup().Build();
  WEFT_ASSERT_OK(RunPasses(kTwoRings, ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(Inserted(startup),
              ElementsAre("c_wait_compute@0(w, v -> w, v)",  //
                          "c_wait_compute@1(b -> b)",        //
                          "c_broadcast@0(w -> w)",           //
                          "c_broadcast@1(b -> b)",           //
                          "c_broadcast@0(v -> v)",           //
                          "c_wait_comm@0(w, v -> w, v)",     //
                          "c_wait_comm@1(b -> b)"));
  EXPECT_THAT(startup, HasNoRaces());
}

// The weights of `rnn`, which Paddle lays into one buffer.
TEST(BroadcastParams, ParametersThatShareMemoryTravelOnOneRing) {
  Program main = ProgramBuilder().Param("a").Param("b").Param("flat", {128}).Param("w").Build();
  ProgramBuilder p;
  p.Param("a").Param("b").Param("flat", {128}).Param("w");
  for (const char* name : {"a", "b", "w"}) {
    p.Op("fill_constant", {}, {{"Out", {name}}});
    p.LongsAttr("shape", {2, 2}).IntAttr("dtype", 5).FloatAttr("value", 1);
  }
  p.Op("coalesce_tensor", {{"Input", {"a", "b"}}},
       {{"Output", {"a", "b"}}, {"FusedOutput", {"flat"}}});
  p.BoolAttr("copy_data", true).IntAttr("dtype", 5);
  Program startup = p.Build();
  WEFT_ASSERT_OK(RunPasses(kTwoRings, ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(Inserted(startup),
              ElementsAre("c_wait_compute@0(a, b, flat -> a, b, flat)",  //
                          "c_wait_compute@1(w -> w)",                    //
                          "c_broadcast@0(a -> a)",                       //
                          "c_broadcast@0(b -> b)",                       //
                          "c_broadcast@1(w -> w)",                       //
                          "c_broadcast@0(flat -> flat)",                 //
                          "c_wait_comm@0(a, b, flat -> a, b, flat)",     //
                          "c_wait_comm@1(w -> w)"));
  EXPECT_THAT(startup, HasNoRaces());
}

TEST(BroadcastParams, RingWithoutAParameterIsNotWaitedFor) {
  Program main = ProgramBuilder().Param("w").Build();
  Program startup = ProgramBuilder().Param("w").Build();
  WEFT_ASSERT_OK(RunPasses(kTwoRings, ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(Inserted(startup), ElementsAre("c_wait_compute@0(w -> w)", "c_broadcast@0(w -> w)",
                                             "c_wait_comm@0(w -> w)"));
}

TEST(BroadcastParams, PaddleDialectClosesEachRingWithTheLastParameter) {
  Program main = Main();
  Program startup = Startup().Build();
  WEFT_ASSERT_OK(RunPasses(kTwoRings, ContextWithEndpoints(2, Dialect::kPaddle), &main, &startup));
  EXPECT_THAT(Inserted(startup),
              ElementsAre("c_broadcast@0(w -> w)",         //
                          "c_broadcast@1(b -> b)",         //
                          "c_broadcast@0(v -> v)",         //
                          "c_sync_comm_stream@0(v -> v)",  //
                          "c_sync_comm_stream@1(v -> v)"));
}

TEST(BroadcastParams, DistributedParametersKeepTheirOwnValues) {
  Program main = Main();
  Program startup = Startup().Build();
  PassContext context = ContextWithRanks(2);
  context.distributed_params = {"b"};
  WEFT_ASSERT_OK(RunPasses(kTwoRings, context, &main, &startup));
  EXPECT_THAT(Inserted(startup), ElementsAre("c_wait_compute@0(w -> w)", "c_wait_compute@1(v -> v)",
                                             "c_broadcast@0(w -> w)", "c_broadcast@1(v -> v)",
                                             "c_wait_comm@0(w -> w)", "c_wait_comm@1(v -> v)"));
}

TEST(BroadcastParams, PaddleDialectClosesWithTheLastParameterEvenIfItIsDistributed) {
  Program main = Main();
  Program startup = Startup().Build();
  PassContext context = ContextWithEndpoints(2, Dialect::kPaddle);
  context.distributed_params = {"v"};
  WEFT_ASSERT_OK(RunPasses(kOneRing, context, &main, &startup));
  EXPECT_THAT(Inserted(startup), ElementsAre("c_broadcast@0(w -> w)", "c_broadcast@0(b -> b)",
                                             "c_sync_comm_stream@0(v -> v)"));
}

TEST(BroadcastParams, StateThatIsNoParameterIsLeftToItsInitializer) {
  Program main = Main();
  ProgramBuilder p = Startup();
  p.Var("moment").last_var().set_persistable(true);
  p.Op("fill_constant", {}, {{"Out", {"moment"}}});
  Program startup = p.Build();
  WEFT_ASSERT_OK(RunPasses(kOneRing, ContextWithRanks(2), &main, &startup));
  EXPECT_EQ(Inserted(startup)[0], "c_wait_compute@0(w, b, v -> w, b, v)");
}

TEST(BroadcastParams, ParameterThatNoOpInitializesComesLast) {
  Program main = Main();
  ProgramBuilder p = Startup();
  p.Param("a");
  Program startup = p.Build();
  WEFT_ASSERT_OK(RunPasses(kOneRing, ContextWithRanks(2), &main, &startup));
  EXPECT_EQ(Inserted(startup)[0], "c_wait_compute@0(w, b, v, a -> w, b, v, a)");
}

// Before Paddle 2.2 no variable said that it is a parameter.
void Unmark(ProgramBuilder* p, const std::string& name) {
  p->Param(name);
  p->last_var().clear_is_parameter();
}

TEST(BroadcastParams, OldFilesHaveTheParametersThatPairsAndOptimizersName) {
  ProgramBuilder m;
  Unmark(&m, "paired");
  Unmark(&m, "updated");
  Unmark(&m, "statistic");
  m.Op("mul_grad", {}, {{"Y@GRAD", {"paired@GRAD"}}}, kRoleBackward)
      .Pairs({"paired", "paired@GRAD"});
  m.Op("sgd", {{"Param", {"updated"}}}, {{"ParamOut", {"updated"}}}, kRoleOptimize);
  Program main = m.Build();
  ProgramBuilder s;
  for (const char* name : {"statistic", "updated", "paired"}) {
    Unmark(&s, name);
    s.Op("fill_constant", {}, {{"Out", {name}}});
  }
  Program startup = s.Build();
  WEFT_ASSERT_OK(RunPasses(kOneRing, ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(Inserted(startup),
              ElementsAre("c_wait_compute@0(updated, paired -> updated, paired)",
                          "c_broadcast@0(updated -> updated)", "c_broadcast@0(paired -> paired)",
                          "c_wait_comm@0(updated, paired -> updated, paired)"));
}

TEST(BroadcastParams, StartupOfAnotherProgramIsRefused) {
  Program main = ProgramBuilder().Param("fc_7.w_0").Build();
  Program startup = Startup().Build();
  EXPECT_THAT(RunPasses(kOneRing, ContextWithRanks(2), &main, &startup),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("parameter fc_7.w_0 of the main program is not declared in the "
                                 "startup program: the two programs do not belong together")));
}

TEST(BroadcastParams, WithoutParametersNothingChanges) {
  Program main = ProgramBuilder().Build();
  Program startup = ProgramBuilder().Build();
  WEFT_ASSERT_OK(RunPasses(kOneRing, ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(OpTexts(startup), ElementsAre("c_comm_init_all@0( -> )"));
}

TEST(BroadcastParams, WithoutRingsItIsRefusedByContract) {
  Program main = Main();
  Program startup = Startup().Build();
  EXPECT_THAT(RunPasses("broadcast-params", ContextWithRanks(2), &main, &startup),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("pass broadcast-params requires rings-set-up, which no earlier "
                                 "pass provides")));
}

}  // namespace
}  // namespace weft
