#include "transpiler/passes/setup/broadcast_params.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

constexpr char kOneRing[] = "comm-init,broadcast-params";
constexpr char kTwoRings[] = "comm-init{nrings=2},broadcast-params{nrings=2}";

constexpr char kMain[] = R"(
    var b, v, w : fp32[2, 2] parameter persistable
  )";

// Parameters are declared as b, v, w and initialized as w, b, v.
constexpr char kStartup[] = R"(
    var b, v, w : fp32[2, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  )";

TEST(BroadcastParams, ParametersComeInTheOrderOfTheirInitializersBetweenWaits) {
  ExpectRewrite(kOneRing, {kMain, kStartup}, R"(
    startup:
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + Out=[w, b, v] = c_wait_compute(X=[w, b, v])
  + Out=[w] = c_broadcast(X=[w])
  + Out=[b] = c_broadcast(X=[b])
  + Out=[v] = c_broadcast(X=[v])
  + Out=[w, b, v] = c_wait_comm(X=[w, b, v])
  )",
                OnRanks(2));
}

TEST(BroadcastParams, ParametersOfAGroupStartFromItsFirstRank) {
  RewriteOptions options = OnRanks(4);
  options.param_attrs["b"].group = RankGroup{"g", {1, 3}};
  options.param_attrs["v"].group = RankGroup{"h", {0, 1}};
  ExpectRewrite(kTwoRings, {kMain, kStartup}, R"(
    startup:
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=4}
  + c_comm_init_all() {nranks=4, ring_id=1}
  + c_comm_init_all() {nranks=4, ring_id=2, group_ranks=ints[1, 3]}
  + c_comm_init_all() {nranks=4, ring_id=3, group_ranks=ints[0, 1]}
  + Out=[w] = c_wait_compute(X=[w])
  + Out=[b] = c_wait_compute(X=[b]) {ring_id=2}
  + Out=[v] = c_wait_compute(X=[v]) {ring_id=3}
  + Out=[w] = c_broadcast(X=[w])
  + Out=[b] = c_broadcast(X=[b]) {ring_id=2, group_ranks=ints[1, 3]}
  + Out=[v] = c_broadcast(X=[v]) {ring_id=3, group_ranks=ints[0, 1]}
  + Out=[w] = c_wait_comm(X=[w])
  + Out=[b] = c_wait_comm(X=[b]) {ring_id=2}
  + Out=[v] = c_wait_comm(X=[v]) {ring_id=3}
  )",
                options);
}

// Paddle's kernel refuses them.
TEST(BroadcastParams, TensorsWithoutElementsStay) {
  ExpectRewrite(kOneRing, R"(
    var d : uint8[0] parameter persistable
    var w : fp32[2, 2] parameter persistable
    startup:
    var d : uint8[0] parameter persistable
    var w : fp32[2, 2] parameter persistable
    Out=[d] = fill_constant() {shape=longs[0], dtype=20, value=0.0}
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + Out=[w] = c_wait_compute(X=[w])
  + Out=[w] = c_broadcast(X=[w])
  + Out=[w] = c_wait_comm(X=[w])
  )",
                OnRanks(2));
}

// A weight without a mark, a copy of a parameter, a constant, and a draw that no op uses.
constexpr char kMainWithStates[] = R"(
    var v : fp32[2, 2] persistable
    var w : fp32[2, 2] parameter persistable
    var copy, one, unused : fp32[2, 2] persistable
    Out=[v] = sum(X=[v, w, copy, one])
  )";
constexpr char kStartupWithStates[] = R"(
    var v : fp32[2, 2] persistable
    var w : fp32[2, 2] parameter persistable
    var copy, one, unused : fp32[2, 2] persistable
    Out=[v] = uniform_random() {shape=longs[2, 2], dtype=5}
    Out=[w] = uniform_random() {shape=longs[2, 2], dtype=5}
    Out=[copy] = assign(X=[w])
    Out=[one] = fill_constant() {shape=longs[2, 2], dtype=5, value=1.0}
    Out=[unused] = uniform_random() {shape=longs[2, 2], dtype=5}
  )";

TEST(BroadcastParams, StatesThatRanksDrawAreBroadcastToo) {
  ExpectRewrite(kOneRing, {kMainWithStates, kStartupWithStates}, R"(
    startup:
    Out=[unused] = uniform_random() {shape=longs[2, 2], dtype=5}
  + c_comm_init_all() {nranks=2}
  + Out=[w, v, copy] = c_wait_compute(X=[w, v, copy])
  + Out=[w] = c_broadcast(X=[w])
  + Out=[v] = c_broadcast(X=[v])
  + Out=[copy] = c_broadcast(X=[copy])
  + Out=[w, v, copy] = c_wait_comm(X=[w, v, copy])
  )",
                OnRanks(2));
}

// Master weights are copies of what ranks draw.
constexpr char kMainWithMasters[] = R"(
    var w_master, u_master : fp32[2, 2] persistable
    ParamOut=[w], VelocityOut=[w_velocity], MasterParamOut=[w_master] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[w_velocity], LearningRate=[lr], MasterParam=[w_master]) role=optimize {mu=0.5, multi_precision=true}
    ParamOut=[u], VelocityOut=[u_velocity], MasterParamOut=[u_master] = momentum(Param=[u], Grad=[u@GRAD], Velocity=[u_velocity], LearningRate=[lr], MasterParam=[u_master]) role=optimize {mu=0.5, multi_precision=true}
  )";
constexpr char kStartupWithMasters[] = R"(
    var w, u : fp32[2, 2] parameter persistable
    var w_master, u_master : fp32[2, 2] persistable
    Out=[w] = uniform_random() {shape=longs[2, 2], dtype=5}
    Out=[u] = uniform_random() {shape=longs[2, 2], dtype=5}
    Out=[w_master] = assign(X=[w])
    Out=[u_master] = assign(X=[u])
)";

TEST(BroadcastParams, MasterWeightsGoWithTheirParameters) {
  RewriteOptions options = OnRanks(4);
  options.verification = Verification::kNever;  // no gradients
  options.param_attrs["w"].group = RankGroup{"g", {1, 3}};
  ExpectRewrite(kOneRing, {kMainWithMasters, kStartupWithMasters}, R"(
    startup:
    Out=[u_master] = assign(X=[u])
  + c_comm_init_all() {nranks=4}
  + c_comm_init_all() {nranks=4, ring_id=1, group_ranks=ints[1, 3]}
  + Out=[u, u_master] = c_wait_compute(X=[u, u_master])
  + Out=[w, w_master] = c_wait_compute(X=[w, w_master]) {ring_id=1}
  + Out=[w] = c_broadcast(X=[w]) {ring_id=1, group_ranks=ints[1, 3]}
  + Out=[u] = c_broadcast(X=[u])
  + Out=[w_master] = c_broadcast(X=[w_master]) {ring_id=1, group_ranks=ints[1, 3]}
  + Out=[u_master] = c_broadcast(X=[u_master])
  + Out=[u, u_master] = c_wait_comm(X=[u, u_master])
  + Out=[w, w_master] = c_wait_comm(X=[w, w_master]) {ring_id=1}
  )",
                options);
  options.param_attrs.clear();
  options.distributed_params = {"w"};
  ExpectRewrite(kOneRing, {kMainWithMasters, kStartupWithMasters}, R"(
    startup:
    Out=[u_master] = assign(X=[u])
  + c_comm_init_all() {nranks=4}
  + Out=[u, u_master] = c_wait_compute(X=[u, u_master])
  + Out=[u] = c_broadcast(X=[u])
  + Out=[u_master] = c_broadcast(X=[u_master])
  + Out=[u, u_master] = c_wait_comm(X=[u, u_master])
  )",
                options);
}

TEST(BroadcastParams, RingsTakeTurns) {
  ExpectRewrite(kTwoRings, {kMain, kStartup}, R"(
    startup:
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + c_comm_init_all() {nranks=2, ring_id=1}
  + Out=[w, v] = c_wait_compute(X=[w, v])
  + Out=[b] = c_wait_compute(X=[b]) {ring_id=1}
  + Out=[w] = c_broadcast(X=[w])
  + Out=[b] = c_broadcast(X=[b]) {ring_id=1}
  + Out=[v] = c_broadcast(X=[v])
  + Out=[w, v] = c_wait_comm(X=[w, v])
  + Out=[b] = c_wait_comm(X=[b]) {ring_id=1}
  )",
                OnRanks(2));
}

// The weights of `rnn`, which Paddle lays into one buffer.
TEST(BroadcastParams, ParametersThatShareMemoryTravelOnOneRing) {
  ExpectRewrite(kTwoRings, R"(
    var a, b : fp32[2, 2] parameter persistable
    var flat : fp32[128] parameter persistable
    var w : fp32[2, 2] parameter persistable
    startup:
    var a, b : fp32[2, 2] parameter persistable
    var flat : fp32[128] parameter persistable
    var w : fp32[2, 2] parameter persistable
    Out=[a] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Output=[a, b], FusedOutput=[flat] = coalesce_tensor(Input=[a, b]) {copy_data=true, dtype=5, align_size=256}
  + c_comm_init_all() {nranks=2}
  + c_comm_init_all() {nranks=2, ring_id=1}
  + Out=[a, b, flat] = c_wait_compute(X=[a, b, flat])
  + Out=[w] = c_wait_compute(X=[w]) {ring_id=1}
  + Out=[a] = c_broadcast(X=[a])
  + Out=[b] = c_broadcast(X=[b])
  + Out=[w] = c_broadcast(X=[w]) {ring_id=1}
  + Out=[flat] = c_broadcast(X=[flat])
  + Out=[a, b, flat] = c_wait_comm(X=[a, b, flat])
  + Out=[w] = c_wait_comm(X=[w]) {ring_id=1}
  )",
                OnRanks(2));
}

TEST(BroadcastParams, RingWithoutAParameterIsNotWaitedFor) {
  ExpectRewrite(kTwoRings, R"(
    var w : fp32[2, 2] parameter persistable
    startup:
    var w : fp32[2, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + c_comm_init_all() {nranks=2, ring_id=1}
  + Out=[w] = c_wait_compute(X=[w])
  + Out=[w] = c_broadcast(X=[w])
  + Out=[w] = c_wait_comm(X=[w])
  )",
                OnRanks(2));
}

TEST(BroadcastParams, PaddleDialectClosesEachRingWithTheLastParameter) {
  ExpectRewrite(kTwoRings, {kMain, kStartup}, R"(
    startup:
  + var nccl_id_0, nccl_id_1 : raw persistable stop_gradient
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
  + Out=[nccl_id_1] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"], ring_id=1}
  + c_comm_init(X=[nccl_id_1]) {nranks=2, rank=0, ring_id=1}
  + Out=[w] = c_broadcast(X=[w])
  + Out=[b] = c_broadcast(X=[b]) {ring_id=1}
  + Out=[v] = c_broadcast(X=[v])
  + Out=[v] = c_sync_comm_stream(X=[v])
  + Out=[v] = c_sync_comm_stream(X=[v]) {ring_id=1}
  )",
                OnEndpoints(2, Dialect::kPaddle));
}

TEST(BroadcastParams, DistributedParametersStayRankLocal) {
  RewriteOptions options = OnRanks(2);
  options.distributed_params = {"b"};
  ExpectRewrite(kTwoRings, {kMain, kStartup}, R"(
    startup:
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + c_comm_init_all() {nranks=2, ring_id=1}
  + Out=[w] = c_wait_compute(X=[w])
  + Out=[v] = c_wait_compute(X=[v]) {ring_id=1}
  + Out=[w] = c_broadcast(X=[w])
  + Out=[v] = c_broadcast(X=[v]) {ring_id=1}
  + Out=[w] = c_wait_comm(X=[w])
  + Out=[v] = c_wait_comm(X=[v]) {ring_id=1}
  )",
                options);
}

TEST(BroadcastParams, PaddleDialectClosesWithTheLastParameterEvenIfItIsDistributed) {
  RewriteOptions options = OnEndpoints(2, Dialect::kPaddle);
  options.distributed_params = {"v"};
  ExpectRewrite(kOneRing, {kMain, kStartup}, R"(
    startup:
  + var nccl_id_0 : raw persistable stop_gradient
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + Out=[nccl_id_0] = c_gen_nccl_id() {endpoint="127.0.0.1:6170", other_endpoints=strings["127.0.0.1:6171"]}
  + c_comm_init(X=[nccl_id_0]) {nranks=2, rank=0}
  + Out=[w] = c_broadcast(X=[w])
  + Out=[b] = c_broadcast(X=[b])
  + Out=[v] = c_sync_comm_stream(X=[v])
  )",
                options);
}

TEST(BroadcastParams, StateThatIsNoParameterIsLeftToItsInitializer) {
  ExpectRewrite(kOneRing, R"(
    var w : fp32[2, 2] parameter persistable
    startup:
    var w : fp32[2, 2] parameter persistable
    var moment : fp32[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[moment] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + Out=[w] = c_wait_compute(X=[w])
  + Out=[w] = c_broadcast(X=[w])
  + Out=[w] = c_wait_comm(X=[w])
  )",
                OnRanks(2));
}

TEST(BroadcastParams, WithoutParametersNothingIsBroadcast) {
  ExpectRewrite(kOneRing, R"(
    startup:
  + c_comm_init_all() {nranks=2}
  )",
                OnRanks(2));
}

TEST(BroadcastParams, ParameterThatNoOpInitializesComesLast) {
  ExpectRewrite(kOneRing,
                {kMain, absl::StrCat("var a : fp32[2, 2] parameter persistable", kStartup)}, R"(
    startup:
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + c_comm_init_all() {nranks=2}
  + Out=[w, b, v, a] = c_wait_compute(X=[w, b, v, a])
  + Out=[w] = c_broadcast(X=[w])
  + Out=[b] = c_broadcast(X=[b])
  + Out=[v] = c_broadcast(X=[v])
  + Out=[a] = c_broadcast(X=[a])
  + Out=[w, b, v, a] = c_wait_comm(X=[w, b, v, a])
  )",
                OnRanks(2));
}

// Before Paddle 2.2 no variable said that it is a parameter.
TEST(BroadcastParams, OldFilesHaveTheParametersThatPairsAndOptimizersName) {
  ExpectRewrite(kOneRing, R"(
    var paired, updated, statistic : fp32[2, 2] persistable
    Y@GRAD=[paired@GRAD] = mul_grad(X=[x], Y=[paired], Out@GRAD=[y@GRAD]) role=backward vars=[paired, paired@GRAD]
    ParamOut=[updated] = sgd(Param=[updated], Grad=[x], LearningRate=[lr]) role=optimize
    startup:
    var paired, updated, statistic : fp32[2, 2] persistable
    Out=[statistic] = fill_constant() {shape=longs[2, 2], dtype=5}
    Out=[updated] = fill_constant() {shape=longs[2, 2], dtype=5}
    Out=[paired] = fill_constant() {shape=longs[2, 2], dtype=5}
  + c_comm_init_all() {nranks=2}
  + Out=[updated, paired] = c_wait_compute(X=[updated, paired])
  + Out=[updated] = c_broadcast(X=[updated])
  + Out=[paired] = c_broadcast(X=[paired])
  + Out=[updated, paired] = c_wait_comm(X=[updated, paired])
  )",
                OnRanks(2));
}

TEST(BroadcastParams, StartupOfAnotherProgramIsRefused) {
  EXPECT_THAT(RewriteStatus(kOneRing, {"var fc_7.w_0 : fp32[2, 2] parameter persistable", kStartup},
                            OnRanks(2)),
              IsInvalidArgument("parameter fc_7.w_0 of the main program is not declared in the "
                                "startup program: the two programs do not belong together"));
}

TEST(BroadcastParams, WithoutRingsItIsRefusedByContract) {
  EXPECT_THAT(RewriteStatus("broadcast-params", {kMain, kStartup}, OnRanks(2)),
              IsFailedPrecondition(
                  "pass broadcast-params needs rings-set-up, which no earlier pass provides"));
}

}  // namespace
}  // namespace weft::testing
