#include "transpiler/passes/broadcast_params.h"

#include <string>
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
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnEndpoints;
using ::weft::testing::OnRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RunPasses;
using ::weft::testing::StatusIs;

constexpr char kOneRing[] = "comm-init,broadcast-params";
constexpr char kTwoRings[] = "comm-init{nrings=2},broadcast-params{nrings=2}";

constexpr char kMain[] = R"(
    var b : fp32[2, 2] parameter persistable
    var v : fp32[2, 2] parameter persistable
    var w : fp32[2, 2] parameter persistable
  )";

// Parameters are declared as b, v, w and initialized as w, b, v.
constexpr char kStartup[] = R"(
    var b : fp32[2, 2] parameter persistable
    var v : fp32[2, 2] parameter persistable
    var w : fp32[2, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  )";

TEST(BroadcastParams, ParametersComeInTheOrderOfTheirInitializersBetweenWaits) {
  ExpectRewrite("comm-init,broadcast-params", {kMain, kStartup}, {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], value=0.5}
    c_comm_init_all() {nranks=2}
    Out=[w, b, v] = c_wait_compute(X=[w, b, v])
    Out=[w] = c_broadcast(X=[w])
    Out=[b] = c_broadcast(X=[b])
    Out=[v] = c_broadcast(X=[v])
    Out=[w, b, v] = c_wait_comm(X=[w, b, v])
  )"},
                OnRanks(2));
}

TEST(BroadcastParams, RingsTakeTurns) {
  ExpectRewrite("comm-init{nrings=2},broadcast-params{nrings=2}", {kMain, kStartup}, {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], value=0.5}
    c_comm_init_all() {nranks=2}
    c_comm_init_all() {nranks=2, ring_id=1}
    Out=[w, v] = c_wait_compute(X=[w, v])
    Out=[b] = c_wait_compute(X=[b]) {ring_id=1}
    Out=[w] = c_broadcast(X=[w])
    Out=[b] = c_broadcast(X=[b]) {ring_id=1}
    Out=[v] = c_broadcast(X=[v])
    Out=[w, v] = c_wait_comm(X=[w, v])
    Out=[b] = c_wait_comm(X=[b]) {ring_id=1}
  )"},
                OnRanks(2));
}

// The weights of `rnn`, which Paddle lays into one buffer.
TEST(BroadcastParams, ParametersThatShareMemoryTravelOnOneRing) {
  ExpectRewrite("comm-init{nrings=2},broadcast-params{nrings=2}",
                {R"(
    var a : fp32[2, 2] parameter persistable
    var b : fp32[2, 2] parameter persistable
    var flat : fp32[128] parameter persistable
    var w : fp32[2, 2] parameter persistable
  )",
                 R"(
    var a : fp32[2, 2] parameter persistable
    var b : fp32[2, 2] parameter persistable
    var flat : fp32[128] parameter persistable
    var w : fp32[2, 2] parameter persistable
    Out=[a] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Output=[a, b], FusedOutput=[flat] = coalesce_tensor(Input=[a, b]) {copy_data=true, dtype=5, align_size=256}
  )"},
                {"", R"(
    Out=[a] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    FusedOutput=[flat], Output=[a, b] = coalesce_tensor(Input=[a, b]) {align_size=256, copy_data=true, dtype=5}
    c_comm_init_all() {nranks=2}
    c_comm_init_all() {nranks=2, ring_id=1}
    Out=[a, b, flat] = c_wait_compute(X=[a, b, flat])
    Out=[w] = c_wait_compute(X=[w]) {ring_id=1}
    Out=[a] = c_broadcast(X=[a])
    Out=[b] = c_broadcast(X=[b])
    Out=[w] = c_broadcast(X=[w]) {ring_id=1}
    Out=[flat] = c_broadcast(X=[flat])
    Out=[a, b, flat] = c_wait_comm(X=[a, b, flat])
    Out=[w] = c_wait_comm(X=[w]) {ring_id=1}
  )"},
                OnRanks(2));
}

TEST(BroadcastParams, RingWithoutAParameterIsNotWaitedFor) {
  ExpectRewrite("comm-init{nrings=2},broadcast-params{nrings=2}",
                {R"(
    var w : fp32[2, 2] parameter persistable
  )",
                 R"(
    var w : fp32[2, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  )"},
                {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    c_comm_init_all() {nranks=2}
    c_comm_init_all() {nranks=2, ring_id=1}
    Out=[w] = c_wait_compute(X=[w])
    Out=[w] = c_broadcast(X=[w])
    Out=[w] = c_wait_comm(X=[w])
  )"},
                OnRanks(2));
}

TEST(BroadcastParams, PaddleDialectClosesEachRingWithTheLastParameter) {
  ExpectRewrite("comm-init{nrings=2},broadcast-params{nrings=2}", {kMain, kStartup}, {"", R"(
    var nccl_id_0 : raw persistable stop_gradient
    var nccl_id_1 : raw persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
    Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"], ring_id=1}
    c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
    Out=[w] = c_broadcast(X=[w])
    Out=[b] = c_broadcast(X=[b]) {ring_id=1}
    Out=[v] = c_broadcast(X=[v])
    Out=[v] = c_sync_comm_stream(X=[v])
    Out=[v] = c_sync_comm_stream(X=[v]) {ring_id=1}
  )"},
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(BroadcastParams, DistributedParametersStayRankLocal) {
  RewriteOptions options = OnRanks(2);
  options.distributed_params = {"b"};
  ExpectRewrite("comm-init{nrings=2},broadcast-params{nrings=2}", {kMain, kStartup}, {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], value=0.5}
    c_comm_init_all() {nranks=2}
    c_comm_init_all() {nranks=2, ring_id=1}
    Out=[w] = c_wait_compute(X=[w])
    Out=[v] = c_wait_compute(X=[v]) {ring_id=1}
    Out=[w] = c_broadcast(X=[w])
    Out=[v] = c_broadcast(X=[v]) {ring_id=1}
    Out=[w] = c_wait_comm(X=[w])
    Out=[v] = c_wait_comm(X=[v]) {ring_id=1}
  )"},
                options);
}

TEST(BroadcastParams, PaddleDialectClosesWithTheLastParameterEvenIfItIsDistributed) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"v"};
  ExpectRewrite("comm-init,broadcast-params", {kMain, kStartup}, {"", R"(
    var nccl_id_0 : raw persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
    c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
    Out=[w] = c_broadcast(X=[w])
    Out=[b] = c_broadcast(X=[b])
    Out=[v] = c_sync_comm_stream(X=[v])
  )"},
                options);
}

TEST(BroadcastParams, StateThatIsNoParameterIsLeftToItsInitializer) {
  ExpectRewrite("comm-init,broadcast-params",
                {R"(
    var w : fp32[2, 2] parameter persistable
  )",
                 R"(
    var w : fp32[2, 2] parameter persistable
    var moment : fp32[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[moment] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  )"},
                {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[moment] = fill_constant() {shape=longs[2, 2], value=0.5}
    c_comm_init_all() {nranks=2}
    Out=[w] = c_wait_compute(X=[w])
    Out=[w] = c_broadcast(X=[w])
    Out=[w] = c_wait_comm(X=[w])
  )"},
                OnRanks(2));
}

TEST(BroadcastParams, WithoutParametersNothingIsBroadcast) {
  ExpectRewrite("comm-init,broadcast-params", {"", ""}, {"", R"(
    c_comm_init_all() {nranks=2}
  )"},
                OnRanks(2));
}

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

TEST(BroadcastParams, WithoutRingsItIsRefusedByContract) {
  Program main = Main();
  Program startup = Startup().Build();
  EXPECT_THAT(RunPasses("broadcast-params", ContextWithRanks(2), &main, &startup),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("pass broadcast-params needs rings-set-up, which no earlier "
                                 "pass provides")));
}

}  // namespace
}  // namespace weft
