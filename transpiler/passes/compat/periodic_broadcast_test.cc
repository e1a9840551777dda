#include "transpiler/passes/compat/periodic_broadcast.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::Contains;

// Weight decay reads b before it is updated.
constexpr char kMain[] = R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Out=[rate] = scale(X=[lr]) role=optimize|lr_sched {scale=0.5}
    Out=[decay] = scale(X=[b]) role=optimize {scale=0.01}
    Out=[g] = elementwise_add(X=[b@GRAD], Y=[decay]) role=optimize
    ParamOut=[b] = sgd(Param=[b], Grad=[g], LearningRate=[lr]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

constexpr char kStartup[] = R"(
    var b, w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = INITIALIZER() {shape=longs[2, 2], dtype=5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )";

constexpr char kBefore[] = R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD]) role=backward
    Out=[rate] = scale(X=[lr]) role=optimize|lr_sched {scale=0.5}
  )";
constexpr char kAfter[] = R"(
    Out=[decay] = scale(X=[b]) role=optimize {scale=0.01}
    Out=[w@GRAD, b@GRAD] = c_wait_comm(X=[w@GRAD, b@GRAD]) role=backward
    Out=[g] = elementwise_add(X=[b@GRAD], Y=[decay]) role=optimize
    ParamOut=[b] = sgd(Grad=[g], LearningRate=[lr], Param=[b]) role=optimize
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  )";
constexpr char kBroadcasts[] = R"(
    Out=[b] = c_wait_compute(X=[b]) role=optimize
    Out=[b] = c_broadcast(X=[b]) role=optimize
    Out=[w] = c_wait_compute(X=[w]) role=optimize {ring_id=1}
    Out=[w] = c_broadcast(X=[w]) role=optimize {ring_id=1}
    Out=[b] = c_wait_comm(X=[b]) role=optimize
    Out=[w] = c_wait_comm(X=[w]) role=optimize {ring_id=1}
  )";

TEST(PeriodicBroadcast, ParametersAreBroadcastBeforeAnOpOfRoleOptimizeReadsThem) {
  RewriteOptions options;
  const auto result =
      ExpectRewrite("grad-all-reduce{scale=none},periodic-broadcast{bcast_period=1,nrings=2}",
                    kMain, absl::StrCat(kBefore, kBroadcasts, kAfter), options);
  EXPECT_THAT(RemarkTexts(result),
              Contains("b broadcast: all ranks go on from the values of rank 0 when=every step "
                       "ring=0"));
}

// After all reductions, which nothing would order after a block of broadcasts in PIR.
TEST(PeriodicBroadcast, OfSeveralOptimizersTheLastHaveParametersBroadcastBefore) {
  ExpectRewrite("grad-all-reduce{scale=none},periodic-broadcast{bcast_period=1}", R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
  + Out=[w, b] = c_wait_compute(X=[w, b]) role=optimize
  + Out=[w] = c_broadcast(X=[w]) role=optimize
  + Out=[b] = c_broadcast(X=[b]) role=optimize
  + Out=[w, b] = c_wait_comm(X=[w, b]) role=optimize
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  )");
}

TEST(PeriodicBroadcast, EveryNthStepTheBroadcastIsInABlock) {
  ExpectRewrite(
      "comm-init{nrings=2},grad-all-reduce{scale=none},"
      "periodic-broadcast{bcast_period=3,nrings=2}",
      {kMain, "var lr : fp32[1] persistable\nOut=[lr] = fill_constant() {shape=longs[1], dtype=5}"},
      {absl::StrCat(R"(
    var periodic_broadcast_step : int64[1] persistable stop_gradient
    var periodic_broadcast_k, periodic_broadcast_remainder : int64[1] stop_gradient
    var periodic_broadcast_zero : int64[1] stop_gradient
    var periodic_broadcast_is_due : bool[1] stop_gradient
    var periodic_broadcast_scope : step_scopes
  )",
                    kBefore, R"(
    Out=[periodic_broadcast_step] = increment(X=[periodic_broadcast_step]) role=optimize
    Out=[periodic_broadcast_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="3", value=3.0}
    Out=[periodic_broadcast_remainder] = elementwise_mod(X=[periodic_broadcast_step], Y=[periodic_broadcast_k]) role=optimize
    Out=[periodic_broadcast_zero] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
    Out=[periodic_broadcast_is_due] = equal(X=[periodic_broadcast_remainder], Y=[periodic_broadcast_zero]) role=optimize
    Out=[b, w], Scope=[periodic_broadcast_scope] = conditional_block(Cond=[periodic_broadcast_is_due], Input=[b, w]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  )",
                    kAfter, "    block 1:\n", kBroadcasts),
       R"(
    var periodic_broadcast_step : int64[1] persistable stop_gradient
    Out=[lr] = fill_constant() {shape=longs[1]}
    c_comm_init_all() {nranks=2}
    c_comm_init_all() {nranks=2, ring_id=1}
    Out=[periodic_broadcast_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
  )"},
      OnRanks(2));
}

// w is that of ranks 1 and 2.
TEST(PeriodicBroadcast, ParametersOfAGroupAreBroadcastOnItsRing) {
  RewriteOptions options = OnRanks(4);
  options.param_attrs["w"].group = RankGroup{"pair", {1, 2}};
  options.verification = Verification::kNever;  // no startup program: nothing sets up the ring
  const auto result = ExpectRewrite(
      "grad-all-reduce{scale=none,nrings=2},periodic-broadcast{bcast_period=1,nrings=2}", kMain, R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  + Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) role=backward {ring_id=2}
  + Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {group_ranks=ints[1, 2], ring_id=2}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
  + Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
  + Out=[b@GRAD] = c_allreduce_sum(X=[b@GRAD]) role=backward
    Out=[rate] = scale(X=[lr]) role=optimize|lr_sched {scale=0.5}
  + Out=[b] = c_wait_compute(X=[b]) role=optimize
  + Out=[b] = c_broadcast(X=[b]) role=optimize
  + Out=[w] = c_wait_compute(X=[w]) role=optimize {ring_id=2}
  + Out=[w] = c_broadcast(X=[w]) role=optimize {group_ranks=ints[1, 2], ring_id=2}
  + Out=[b] = c_wait_comm(X=[b]) role=optimize
  + Out=[w] = c_wait_comm(X=[w]) role=optimize {ring_id=2}
    Out=[decay] = scale(X=[b]) role=optimize {scale=0.01}
  + Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
    ParamOut=[b] = sgd(Param=[b], Grad=[g], LearningRate=[lr]) role=optimize
  + Out=[w@GRAD] = c_wait_comm(X=[w@GRAD]) role=backward {ring_id=2}
  )",
      options);
  EXPECT_THAT(RemarkTexts(result),
              Contains("w broadcast: the ranks of group pair go on from the values of rank 1 "
                       "when=every step ring=2"));
}

// The processes of ranks draw different numbers, unlike one process that drives several devices.
TEST(PeriodicBroadcast, WithoutTheFirstBroadcastProcessesMayNotDraw) {
  const auto status = [](const std::string& initializer, int period,
                         const RewriteOptions& options) {
    std::string startup = kStartup;
    startup.replace(startup.find("INITIALIZER"), 11, initializer);
    const std::string option = absl::StrCat("{bcast_period=", period, "}");
    return RewriteStatus(absl::StrCat("comm-init,broadcast-params", option,
                                      ",grad-all-reduce{scale=none},periodic-broadcast", option),
                         {kMain, startup}, options);
  };
  WEFT_EXPECT_OK(status("uniform_random", 0, OnEndpoints(2)));
  WEFT_EXPECT_OK(status("uniform_random", 2, OnEndpoints(2)));
  WEFT_EXPECT_OK(status("fill_constant", -1, OnEndpoints(2)));
  WEFT_EXPECT_OK(status("uniform_random", -1, OnRanks(2)));
  EXPECT_THAT(status("uniform_random", -1, OnEndpoints(2)), IsFailedPrecondition("W317"));
}

TEST(PeriodicBroadcast, PeriodZeroIsLeftToTheStartupProgram) {
  for (const char* period : {"0", "-1"}) {
    const auto result = ExpectRewrite(
        absl::StrCat("grad-all-reduce{scale=none},periodic-broadcast{bcast_period=", period, "}"),
        kMain, absl::StrCat(kBefore, kAfter));
    EXPECT_FALSE(result.passes.back().changed);
  }
}

TEST(PeriodicBroadcast, WrongInputIsRefused) {
  EXPECT_THAT(RewriteStatus("periodic-broadcast{bcast_period=1}", kMain),
              IsFailedPrecondition("needs gradients-reduced, which no earlier pass provides"));
  EXPECT_THAT(
      RewriteStatus("grad-all-reduce{scale=none},periodic-broadcast{bcast_period=2}", kMain),
      IsFailedPrecondition("counting steps needs the startup program"));
  for (const char* pass : {"periodic-broadcast", "broadcast-params"}) {
    EXPECT_THAT(RewriteStatus(absl::StrCat(pass, "{bcast_period=-2}"), kMain),
                IsInvalidArgument("bcast_period: expected an integer >= -1"));
  }
}

}  // namespace
}  // namespace weft::testing
