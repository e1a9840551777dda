#include "transpiler/verifier/communication/parameter_updates.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/averaging_schedule.h"
#include "proto/outer_optimizer.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ParameterUpdates, AProgramForOneDeviceIsNotAskedToCommunicate) {
  EXPECT_THAT(Found(OneDeviceStep(), VerifyOptions()), IsEmpty());
  EXPECT_THAT(Found(OneDeviceStep(), ForRanks(1)), IsEmpty());
  EXPECT_THAT(Found(OneDeviceStep(), ForRanks(2)), ElementsAre(HasSubstr("W310")));
}

TEST(ParameterUpdates, DistributedParametersMayBeUpdatedByEachRank) {
  VerifyOptions options = ForRanks(2);
  options.setting.distributed_params = {"w"};
  EXPECT_THAT(Found(OneDeviceStep(), options), IsEmpty());
}

TEST(ParameterUpdates, SumsMayBeWanted) {
  const std::string summed = absl::StrReplaceAll(TwoRankStep(), {{"scale=0.5", "scale=1.0"}});
  EXPECT_THAT(Found(summed), Contains(HasSubstr("W312")));
  VerifyOptions options = ForRanks(2);
  options.setting.reduction = Setting::Reduction::kSum;
  EXPECT_THAT(Found(summed, options), IsEmpty());
}

// --- Draws
// -----------------------------------------------------------------------------------------

// Adds a draw, after the given op, to the mean of the gradients.
std::string NoiseStep(absl::string_view seed, absl::string_view after_draw) {
  return absl::StrCat(OneDeviceStep(
      absl::StrCat(
          "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n"
          "    Out=[noise] = gaussian_random() {shape=longs[1, 1], dtype=5, mean=0.0, std=1.0, "
          "seed=",
          seed, "}\n", after_draw, "    Out=[w@GRAD] = sum(X=[w@GRAD, noise])\n"),
      "", "    var noise : fp32[1, 1]\n"));
}
constexpr char kBroadcastNoise[] =
    "    Out=[noise] = c_broadcast(X=[noise]) {ring_id=0, root=0, use_calc_stream=true}\n";

TEST(ParameterUpdates, DrawsMayBeAddedIfAllRanksHaveTheSame) {
  EXPECT_THAT(Found(NoiseStep("7", "")), IsEmpty());
  EXPECT_THAT(Found(NoiseStep("0", kBroadcastNoise)), IsEmpty());
}

TEST(ParameterUpdates, DifferentDrawsAreNamed) {
  EXPECT_THAT(Found(NoiseStep("0", "")),
              Contains(AllOf(StartsWith("error: W310: "),
                             HasSubstr("because op 3 (gaussian_random) draws other numbers"))));
}

// The data of one rank is no draw.
TEST(ParameterUpdates, WhatOneRankIsFedIsNotAddedAsADraw) {
  const std::string fed = "    Out=[noise] = elementwise_mul(X=[noise], Y=[x])\n";
  EXPECT_THAT(Found(NoiseStep("0", fed + kBroadcastNoise)), Contains(HasSubstr("W311")));
}

// What another program sends may depend on its data.
TEST(ParameterUpdates, WhatOneRankReceivesIsNotAddedAsADraw) {
  const std::string step = NoiseStep("0", kBroadcastNoise);
  const size_t draw = step.find("gaussian_random()");
  ASSERT_NE(draw, std::string::npos);
  std::string received = step;
  received.replace(draw, step.find('\n', draw) - draw,
                   "recv_v2() {out_shape=ints[1, 1], dtype=5, peer=1, ring_id=0, "
                   "use_calc_stream=true}");
  EXPECT_THAT(Found(received), Contains(HasSubstr("W311")));
}

// --- LocalSGD -----------------------------------------------------------------------------------

constexpr absl::string_view kStartupOfProcesses = R"(
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    var id : raw
    Out=[w] = uniform_random() {shape=longs[4], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[id] = c_gen_nccl_id() {rank=0, endpoint="a:1", other_endpoints=strings["b:1"]}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}
)";

TEST(ParameterUpdates, LocalSgdBeginsWithTheSameParametersOnAllRanks) {
  const Program program = ProgramOf(kEveryOtherStep), startup = ProgramOf(kStartupOfProcesses);
  EXPECT_THAT(Errors({{&program, &startup}}), IsEmpty());
}

TEST(ParameterUpdates, LocalSgdMayNotBeginWithTheRanksOwnDraws) {
  const Program program = ProgramOf(kEveryOtherStep);
  const Program startup = ProgramOf(
      kStartupOfProcesses,
      {{"    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}\n", ""}});
  EXPECT_THAT(Errors({{&program, &startup}}),
              ElementsAre(AllOf(StartsWith("error: W317: "), HasSubstr("does not broadcast it"))));
}

// Updates w, in a step of two ranks, by their own gradients and by `after`, where LocalSGD mixes or
// rounds outer gradients.
std::vector<std::string> FoundWithOuter(absl::string_view after, const AveragingSchedule& claimed) {
  VerifyOptions options = ForRanks(2);
  options.setting.averaging = claimed;
  return Found(OneDeviceStep("", after, R"(
    var last : fp32[1, 1] persistable
    var b : fp32[1, 1] parameter persistable
    var d, e : fp32[1, 1]
    var mean : fp32[]
    var rate : fp32[1]
)"),
               options);
}

AveragingSchedule MixedOuter() {
  AveragingSchedule schedule;
  schedule.outer = {OuterOptimizer::Rule::kSgd, 0.5};
  schedule.mix = 0.5;
  return schedule;
}

AveragingSchedule RoundedOuter() {
  AveragingSchedule schedule = MixedOuter();
  schedule.mix = 0;
  schedule.sent = AveragingSchedule::Sent::kBf16;
  return schedule;
}

constexpr absl::string_view kOuterSgd = R"(
    Out=[d] = elementwise_sub(X=[last], Y=[w]) {axis=-1}
    Out=[d] = c_allreduce_avg(X=[d]) {ring_id=0, use_calc_stream=true}
    Out=[d] = elementwise_mul(X=[d], Y=[lr]) {axis=-1}
    Out=[last] = elementwise_sub(X=[last], Y=[d]) {axis=-1}
    Out=[w] = scale(X=[w]) {scale=0.5}
    Out=[d] = scale(X=[last]) {scale=0.5}
    Out=[w] = elementwise_add(X=[w], Y=[d]) {axis=-1}
)";

TEST(ParameterUpdates, OuterOptimizersMoveParametersByTheirOwnAverages) {
  for (const AveragingSchedule& claimed : {MixedOuter(), RoundedOuter()}) {
    EXPECT_THAT(FoundWithOuter(kOuterSgd, claimed), Not(Contains(HasSubstr("W31"))));
    EXPECT_THAT(FoundWithOuter(kOuterSgd, claimed), Not(Contains(HasSubstr("W708"))));
  }
}

// What ranks have averaged, beside, makes no average of a parameter.
TEST(ParameterUpdates, OtherAveragesDoNotSynchronizeParameters) {
  constexpr absl::string_view kMean = R"(
    Out=[mean] = reduce_mean(X=[x]) {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[mean] = c_allreduce_avg(X=[mean]) {ring_id=0, use_calc_stream=true}
    Out=[w] = elementwise_add(X=[w], Y=[mean]) {axis=-1}
)";
  constexpr absl::string_view kRate = R"(
    Out=[rate] = assign(X=[lr])
    Out=[rate] = c_allreduce_avg(X=[rate]) {ring_id=0, use_calc_stream=true}
    Out=[w] = elementwise_add(X=[w], Y=[rate]) {axis=-1}
)";
  for (const AveragingSchedule& claimed : {MixedOuter(), RoundedOuter()}) {
    for (absl::string_view added : {kMean, kRate}) {
      EXPECT_THAT(FoundWithOuter(added, claimed), ElementsAre(StartsWith("error: W310: ")));
    }
  }
}

// What a rank computes of an average and of its batch is its own.
TEST(ParameterUpdates, WhatFollowsFromABatchIsNoAverage) {
  const std::string after =
      absl::StrCat(kOuterSgd, "    Out=[mean] = reduce_mean(X=[x]) {reduce_all=true, dim=ints[0], ",
                   "keep_dim=false}\n    Out=[e] = elementwise_mul(X=[w], Y=[mean]) {axis=-1}\n"
                   "    Out=[b] = elementwise_add(X=[b], Y=[e]) {axis=-1}\n");
  EXPECT_THAT(FoundWithOuter(after, MixedOuter()),
              AllOf(Contains(HasSubstr("W310: parameter b is rank-local after a step")),
                    Not(Contains(HasSubstr("updates w")))));
}

// The queue of a contrastive loss, which layer 7 names, however it is declared.
TEST(ParameterUpdates, AParameterThatNoGradientReachesIsAState) {
  const auto found = [](absl::string_view mark, absl::string_view gradient) {
    return Found(absl::StrCat(kStepVars, "    var q : fp32[4, 1] parameter persistable ", mark,
                              "\n", kStepLossGrad, kStepDivide, kStepBackward, gradient, kStepSum,
                              kStepUpdate, "    Out=[q] = square(X=[x])\n"),
                 ForRanks(2));
  };
  constexpr absl::string_view kGradient =
      "    X@GRAD=[q@GRAD] = mul_grad(X=[q], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n";
  EXPECT_THAT(found("stop_gradient", ""), Not(Contains(HasSubstr("W310"))));
  EXPECT_THAT(found("stop_gradient", kGradient), Contains(HasSubstr("W310")));
  EXPECT_THAT(found("", ""), Contains(HasSubstr("W310")));
}

// --- Updates of another variable
// ------------------------------------------------------------------

// The host updates what the parameter changes by.
constexpr absl::string_view kByChange = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var g : fp32[4]
    var g@CPU, d : fp32[4]
    Out=[d] = fill_constant() role=optimize {shape=longs[4], dtype=5, value=0.0, op_device="cpu"}
    Out=[g] = square(X=[x]) role=backward
    Out=[g] = c_allreduce_avg(X=[g]) role=backward {use_calc_stream=true}
    Out=[g] = stream_wait(X=[g]) role=optimize {stream="d2h", awaited="compute"}
    Out=[g@CPU] = memcpy_d2h(X=[g]) role=optimize
    Out=[g@CPU] = stream_wait(X=[g@CPU]) role=optimize {stream="cpu", awaited="d2h"}
    ParamOut=[d] = sgd(Param=[d], Grad=[g@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
    Out=[d] = stream_wait(X=[d]) role=optimize {stream="h2d", awaited="cpu"}
    Out=[d@SIM] = memcpy_h2d(X=[d]) role=optimize
    Out=[d@SIM] = stream_wait(X=[d@SIM]) role=optimize {stream="compute", awaited="h2d"}
    Out=[w] = elementwise_add(X=[w], Y=[d@SIM]) role=optimize {axis=-1}
)";
constexpr absl::string_view kBroadcast =
    "    Out=[w] = c_broadcast(X=[w]) {ring_id=0, root=0, use_calc_stream=true}\n";

TEST(ParameterUpdates, ChangeOfAParameterIsEqualOnAllRanks) {
  const Program program = ProgramOf(kByChange), startup = ProgramOf(kStartupOfProcesses);
  EXPECT_THAT(Errors({{&program, &startup}}), IsEmpty());
  EXPECT_THAT(Errors({{&program}}), IsEmpty());
}

TEST(ParameterUpdates, ChangeOfAParameterNeedsOneThatIsEqualOnAllRanks) {
  const Program program = ProgramOf(kByChange);
  const Program startup = ProgramOf(kStartupOfProcesses, {{kBroadcast, ""}});
  EXPECT_THAT(Errors({{&program, &startup}}),
              ElementsAre("error: W317: op 6 (sgd) updates d of parameter w by g@CPU, but the "
                          "parameter itself differs between ranks when training begins: the "
                          "startup program does not broadcast it"));
}

// What the accelerator gets is rounded to the dtype of the parameter.
TEST(ParameterUpdates, ChangeOfAParameterMayBeRounded) {
  const Edits rounded = {{"var w : fp32[4]", "var w : fp16[4]"},
                         {"    Out=[d] = stream_wait(X=[d])",
                          "    Out=[s] = cast(X=[d]) role=optimize {in_dtype=5, out_dtype=4, "
                          "op_device=\"cpu\"}\n    Out=[s] = stream_wait(X=[s])"},
                         {"memcpy_h2d(X=[d])", "memcpy_h2d(X=[s])"}};
  const Edits drawn = {
      {"var w : fp32[4]", "var w : fp16[4]"},
      {"uniform_random() {shape=longs[4], dtype=5", "uniform_random() {shape=longs[4], dtype=4"}};
  const Program program = ProgramOf(kByChange, rounded);
  const Program startup = ProgramOf(kStartupOfProcesses, drawn);
  EXPECT_THAT(Errors({{&program, &startup}}), IsEmpty());
  Edits local = drawn;
  local.push_back({kBroadcast, ""});
  const Program own = ProgramOf(kStartupOfProcesses, local);
  EXPECT_THAT(Errors({{&program, &own}}),
              ElementsAre(AllOf(StartsWith("error: W317: op 6 (sgd) updates d of parameter w"),
                                HasSubstr("does not broadcast it"))));
}

// The zeros that the change begins with come from the device that adds it.
TEST(ParameterUpdates, ChangeOfAParameterMayTravelBothWays) {
  const Edits both_ways = {
      {"    Out=[d] = fill_constant() role=optimize {shape=longs[4], dtype=5, value=0.0, "
       "op_device=\"cpu\"}\n",
       "    Out=[d@SIM] = fill_constant() role=optimize {shape=longs[4], dtype=5, value=0.0}\n"
       "    Out=[d@SIM] = stream_wait(X=[d@SIM]) role=optimize {stream=\"d2h\", "
       "awaited=\"compute\"}\n"
       "    Out=[d] = memcpy_d2h(X=[d@SIM]) role=optimize\n"}};
  const Program program = ProgramOf(kByChange, both_ways);
  const Program startup = ProgramOf(kStartupOfProcesses);
  EXPECT_THAT(Errors({{&program, &startup}}), IsEmpty());
  const Program own = ProgramOf(kStartupOfProcesses, {{kBroadcast, ""}});
  EXPECT_THAT(Errors({{&program, &own}}),
              ElementsAre(AllOf(StartsWith("error: W317: op 8 (sgd) updates d of parameter w"),
                                HasSubstr("does not broadcast it"))));
}

TEST(ParameterUpdates, ChangeOfAParameterIsByTheMeanOfAllRanks) {
  const Program program = ProgramOf(
      kByChange,
      {{"    Out=[g] = c_allreduce_avg(X=[g]) role=backward {use_calc_stream=true}\n", ""}});
  EXPECT_THAT(Errors({{&program}}),
              Contains(StartsWith("error: W310: op 5 (sgd) updates d of parameter w by g@CPU")));
}

// The host updates a mirror, since the accelerator writes the parameter last.
TEST(ParameterUpdates, LocalSgdMayUpdateAMirror) {
  const Edits edits = {
      {"    var lr :", "    var w@CPU : fp32[4]\n    var lr :"},
      {"    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])\n",
       "    Out=[w@CPU] = memcpy_d2h(X=[w])\n"
       "    Out=[w@CPU] = stream_wait(X=[w@CPU]) {stream=\"cpu\", awaited=\"d2h\"}\n"
       "    ParamOut=[w@CPU] = sgd(Param=[w@CPU], Grad=[x], LearningRate=[lr]) "
       "{op_device=\"cpu\"}\n"
       "    Out=[w@CPU] = stream_wait(X=[w@CPU]) {stream=\"h2d\", awaited=\"cpu\"}\n"
       "    Out=[w] = memcpy_h2d(X=[w@CPU])\n"
       "    Out=[w] = stream_wait(X=[w]) {stream=\"compute\", awaited=\"h2d\"}\n"}};
  const Program program = ProgramOf(kEveryOtherStep, edits);
  const Program startup = ProgramOf(kStartupOfProcesses);
  EXPECT_THAT(Errors({{&program, &startup}}), IsEmpty());
  const Program own = ProgramOf(kStartupOfProcesses, {{kBroadcast, ""}});
  EXPECT_THAT(Errors({{&program, &own}}),
              ElementsAre(AllOf(StartsWith("error: W317: op 2 (sgd) updates w@CPU of parameter w"),
                                HasSubstr("does not broadcast it"))));
  Edits never = edits;
  never.push_back({"    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}\n",
                   "    Out=[w] = scale(X=[w]) {scale=1.0}\n"});
  const Program apart = ProgramOf(kEveryOtherStep, never);
  EXPECT_THAT(Errors({{&apart}}),
              Contains(StartsWith("error: W310: op 2 (sgd) updates w@CPU of parameter w by x")));
}

// --- Updates by hand -----------------------------------------------------------------------------

constexpr absl::string_view kByHand = R"(
    var x : fp32[4] need_check_feed
    var w : fp32[4] parameter persistable
    var g : fp32[4]
    Out=[g] = square(X=[x]) role=backward
    Out=[g] = c_allreduce_avg(X=[g]) role=backward {use_calc_stream=true}
    Out=[w] = elementwise_sub(X=[w], Y=[g]) role=optimize {axis=-1}
)";

TEST(ParameterUpdates, UpdatesByHandAreByTheMeanOfAllRanks) {
  const Program right = ProgramOf(kByHand);
  EXPECT_THAT(Errors({{&right}}), IsEmpty());
  const Program of_one = ProgramOf(kByHand, {{"c_allreduce_avg(X=[g]) role=backward {",  //
                                              "c_broadcast(X=[g]) role=backward {root=1, "}});
  EXPECT_THAT(Errors({{&of_one}}), ElementsAre(StartsWith("error: W311: parameter w is ")));
  // After the update.
  const Program after = ProgramOf(
      kByHand, {{"    Out=[g] = c_allreduce_avg(X=[g]) role=backward {use_calc_stream=true}\n", ""},
                {"role=optimize {axis=-1}\n",
                 "role=optimize {axis=-1}\n    Out=[w] = c_broadcast(X=[w]) {root=1, "
                 "use_calc_stream=true}\n"}});
  EXPECT_THAT(Errors({{&after}}),
              ElementsAre("error: W311: parameter w is the value of rank 1 alone after a step: "
                          "expected an update by the mean over all ranks"));
}

// A learning rate that all ranks get is equal on all; of a rate for each sample, each has a part.
TEST(ParameterUpdates, DataMayBeEqualOnAllRanks) {
  for (const bool has_op : {false, true}) {
    const std::string mark = has_op ? "" : " need_check_feed";
    const std::string feed = has_op ? "    Out=[lr] = feed(X=[batch]) {col=0}\n" : "";
    const auto fed = [&](const std::string& type) {
      return ProgramOf(kByHand, {{"    var g : fp32[4]\n",
                                  absl::StrCat("    var batch : feed_minibatch persistable\n    "
                                               "var g : fp32[4]\n"
                                               "    var lr : ",
                                               type, mark, "\n", feed)},
                                 {"    Out=[w] =",
                                  "    Out=[m] = mean(X=[lr])\n    Out=[g] = "
                                  "elementwise_mul(X=[g], Y=[m])\n    Out=[w] ="}});
    };
    const Program whole = fed("fp32[1]"), split = fed("fp32[-1, 1]");
    EXPECT_THAT(Errors({{&whole}}), IsEmpty());
    EXPECT_THAT(Errors({{&split}}), ElementsAre(StartsWith("error: W310: parameter w is ")));
  }
}

// A running mean is declared as a parameter where it is made like one.
TEST(ParameterUpdates, OptionThatReducesAStatisticIsNamed) {
  const Edits statistic = {
      {"    var x : fp32[4] need_check_feed\n",
       "    var x : fp32[-1, 4] need_check_feed\n    var mean : fp32[4] parameter persistable\n"
       "    var m : fp32[4]\n"
       "    Out=[m] = reduce_mean(X=[x]) role=forward {dim=ints[0], keep_dim=false, "
       "reduce_all=false}\n"
       "    Out=[mean] = elementwise_add(X=[mean], Y=[m]) role=forward {axis=-1}\n"}};
  const Program forward = ProgramOf(kByHand, statistic);
  EXPECT_THAT(
      Errors({{&forward}}),
      Contains("error: W310: parameter mean is rank-local after a step: its gradient is "
               "never reduced over the ranks; transpile option:statistics true reduces it"));
  // What an optimizer does is no statistic.
  const std::string text = absl::StrReplaceAll(kByHand, statistic);
  const Program update = ProgramOf(text, {{"Y=[m]) role=forward", "Y=[m]) role=optimize"}});
  EXPECT_THAT(Errors({{&update}}),
              Contains("error: W310: parameter mean is rank-local after a step: its gradient is "
                       "never reduced over the ranks"));
}

// --- Parameters that do not stay equal ----------------------------------------------------------

constexpr absl::string_view kMeanGradient = R"(
    var x : fp32[4] need_check_feed stop_gradient
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var limit : fp32[1] persistable
    var size : fp32[1]
    var due : bool[1]
    var scope : step_scopes
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = elementwise_mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[size] = reduce_mean(X=[x]) {dim=ints[0], keep_dim=false, reduce_all=true}
)";
constexpr absl::string_view kUpdate =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n";

TEST(ParameterUpdates, EqualParametersNeedLearningRatesThatRanksAgreeOn) {
  const std::string rate = "    Out=[lr] = scale(X=[size]) {scale=0.1}\n";
  const Program right = ProgramOf(absl::StrCat(kMeanGradient, kUpdate));
  const Program wrong = ProgramOf(absl::StrCat(kMeanGradient, rate, kUpdate));
  EXPECT_THAT(Errors({{&right}}), IsEmpty());
  EXPECT_THAT(Errors({{&wrong}}),
              ElementsAre("error: W317: op 5 (sgd) updates w by w@GRAD, but the parameter itself "
                          "begins to differ between ranks in a step: op 5 (sgd) reads lr, which "
                          "differs between ranks"));
}

TEST(ParameterUpdates, EqualParametersNeedConditionsThatRanksAgreeOn) {
  const std::string text =
      absl::StrCat(kMeanGradient,
                   "    Out=[due] = greater_than(X=[size], Y=[limit])\n"
                   "    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w, w@GRAD]) "
                   "{sub_block=block(1), is_scalar_condition=true}\n"
                   "    block 1:\n",
                   kUpdate);
  const Program right = ProgramOf(text, {{"X=[size], Y=[limit]", "X=[lr], Y=[limit]"}});
  const Program wrong = ProgramOf(text);
  EXPECT_THAT(Errors({{&right}}), IsEmpty());
  EXPECT_THAT(
      Errors({{&wrong}}),
      ElementsAre("error: W317: block 1, op 0 (sgd) updates w by w@GRAD, but the parameter itself "
                  "begins to differ between ranks in a step: op 5 (conditional_block) runs its "
                  "block on condition due, which differs between ranks"));
}

}  // namespace
}  // namespace weft::testing
