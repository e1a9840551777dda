#include "transpiler/verifier/equivalence/outer_updates.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::string_view kOneDevice = R"(
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr]) role=optimize
)";

constexpr absl::string_view kOneDeviceStartup = R"(
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = gaussian_random() {shape=longs[4], dtype=5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
)";

// Synchronizes w in every other step; MOVE stands for the ops of the outer optimizer.
constexpr absl::string_view kSynchronized = R"(
    var w : fp32[4] parameter persistable
    var last, v : fp32[4] persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    var step : int64[1] persistable
    var k, none, rest : int64[1]
    var due : bool[1]
    var scope : step_scopes
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr]) role=optimize
    Out=[step] = increment(X=[step]) role=optimize {step=1.0}
    Out=[k] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=2.0}
    Out=[none] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=0.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) role=optimize {axis=-1}
    Out=[due] = equal(X=[rest], Y=[none]) role=optimize
    Out=[w, last, v], Scope=[scope] = conditional_block(Cond=[due], Input=[w, last, v, lr]) role=optimize {sub_block=block(1), is_scalar_condition=true}
    block 1:
    Out=[w] = elementwise_sub(X=[last], Y=[w]) role=optimize {axis=-1}
    Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=0, use_calc_stream=true}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.5, nranks=2}
    MOVE
    Out=[last] = elementwise_sub(X=[last], Y=[w]) role=optimize {axis=-1}
    Out=[w] = assign(X=[last]) role=optimize
)";

constexpr absl::string_view kSgd = "Out=[w] = scale(X=[w]) role=optimize {scale=0.7}";
constexpr absl::string_view kNesterov = R"(
    Out=[v] = elementwise_add(X=[v], Y=[w]) role=optimize {axis=-1}
    Out=[v] = scale(X=[v]) role=optimize {scale=0.9}
    Out=[w] = elementwise_add(X=[w], Y=[v]) role=optimize {axis=-1}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.7})";
constexpr absl::string_view kSlowMo = R"(
    Out=[w] = elementwise_div(X=[w], Y=[lr]) role=optimize {axis=-1}
    Out=[v] = scale(X=[v]) role=optimize {scale=0.5}
    Out=[v] = elementwise_add(X=[v], Y=[w]) role=optimize {axis=-1}
    Out=[w] = scale(X=[v]) role=optimize {scale=0.25}
    Out=[w] = elementwise_mul(X=[w], Y=[lr]) role=optimize {axis=-1})";

constexpr absl::string_view kStartup = R"(
    var w : fp32[4] parameter persistable
    var last, v : fp32[4] persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    c_comm_init_all() {ring_id=0}
    Out=[w] = gaussian_random() {shape=longs[4], dtype=5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
    Out=[w] = c_broadcast(X=[w]) {ring_id=0, use_calc_stream=true}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[last] = assign(X=[w])
    Out=[v] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
)";

struct Outer {
  const char* claim;
  absl::string_view move;
};
constexpr Outer kOuters[] = {{"sgd{lr=0.7}", kSgd},
                             {"nesterov{lr=0.7,momentum=0.9}", kNesterov},
                             {"slowmo{lr=0.25,momentum=0.5}", kSlowMo}};

VerifyOptions Claiming(absl::string_view claim) {
  VerifyOptions options = ForRanks(2);
  AveragingSchedule schedule = {2};
  schedule.outer = *ParseOuterOptimizer(claim);
  options.setting.averaging = schedule;
  return options;
}

// `edits`: of the main program.
Program MainOf(const Outer& outer, const Edits& edits = {}) {
  Edits all = {{"MOVE", outer.move}};
  all.insert(all.end(), edits.begin(), edits.end());
  return ProgramOf(kSynchronized, all);
}

std::vector<std::string> ErrorsOf(const Outer& outer, const Edits& edits = {},
                                  const Edits& startup_edits = {}) {
  const Program original = ProgramOf(kOneDevice), original_startup = ProgramOf(kOneDeviceStartup),
                program = MainOf(outer, edits), startup = ProgramOf(kStartup, startup_edits);
  VerifyOptions options = Claiming(outer.claim);
  options.original = {&original, &original_startup};
  return Lines(Verify({{&program, &startup}}, options));
}

auto HasError(absl::string_view rule, absl::string_view text) {
  return Contains(AllOf(StartsWith(absl::StrCat("error: ", rule)), HasSubstr(std::string(text))));
}

// For each optimizer.
void ExpectErrors(const Edits& edits, absl::string_view rule, absl::string_view text) {
  for (const Outer& outer : kOuters) {
    SCOPED_TRACE(outer.claim);
    EXPECT_THAT(ErrorsOf(outer, edits), HasError(rule, text));
  }
}

TEST(OuterUpdates, FormulasAreVerified) {
  for (const Outer& outer : kOuters) EXPECT_THAT(ErrorsOf(outer), IsEmpty()) << outer.claim;
}

TEST(OuterUpdates, EachIsNoOther) {
  for (const Outer& claimed : kOuters) {
    for (const Outer& written : kOuters) {
      if (claimed.claim == written.claim) continue;
      EXPECT_THAT(ErrorsOf({claimed.claim, written.move}), HasError("W613", "variable w"))
          << claimed.claim << " " << written.claim;
    }
  }
}

TEST(OuterUpdates, PlainAverageIsNone) {
  ExpectErrors({{"Out=[last] = elementwise_sub(X=[last], Y=[w])", "Out=[last] = assign(X=[w])"}},
               "W613", "variable w");
}

TEST(OuterUpdates, WithoutTheClaimTheyAreRefused) {
  for (const Outer& outer : kOuters) {
    EXPECT_THAT(ErrorsOf({"averaging", outer.move}), HasError("W601", "variable w")) << outer.claim;
  }
}

TEST(OuterUpdates, WrongPeriodIsRefused) {
  ExpectErrors({{"shape=longs[1], dtype=3, value=2.0", "shape=longs[1], dtype=3, value=3.0"}},
               "W605", "expected every 2 steps");
}

TEST(OuterUpdates, CounterThatStandsStillIsRefused) {
  ExpectErrors({{"    Out=[step] = increment(X=[step]) role=optimize {step=1.0}\n", ""}}, "W605",
               "which holds in step 1");
}

TEST(OuterUpdates, MissingAverageIsRefused) {
  ExpectErrors({{"    Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=0, "
                 "use_calc_stream=true}\n    Out=[w] = scale(X=[w]) role=optimize {scale=0.5, "
                 "nranks=2}\n",
                 ""}},
               "W613", "");
}

TEST(OuterUpdates, SumInsteadOfAMeanIsRefused) {
  ExpectErrors({{"    Out=[w] = scale(X=[w]) role=optimize {scale=0.5, nranks=2}\n", ""}}, "W613",
               "to become");
}

TEST(OuterUpdates, GradientOfOneRankIsRefused) {
  ExpectErrors({{"Out=[w] = c_allreduce_sum(X=[w])", "Out=[w] = c_broadcast(X=[w])"},
                {"{scale=0.5, nranks=2}", "{scale=1.0}"}},
               "W613", "expected it equal on all ranks");
}

TEST(OuterUpdates, OuterGradientOfTheWrongSignIsRefused) {
  ExpectErrors({{"elementwise_sub(X=[last], Y=[w]) role=optimize {axis=-1}\n    Out=[w] = c_all",
                 "elementwise_sub(X=[w], Y=[last]) role=optimize {axis=-1}\n    Out=[w] = c_all"}},
               "W613", "to become");
}

TEST(OuterUpdates, OtherRateOrMomentumIsRefused) {
  EXPECT_THAT(ErrorsOf(kOuters[0], {{"scale=0.7", "scale=0.71"}}), HasError("W613", "to become"));
  EXPECT_THAT(ErrorsOf(kOuters[1], {{"scale=0.7", "scale=0.71"}}), HasError("W613", "to become"));
  EXPECT_THAT(ErrorsOf(kOuters[1], {{"scale=0.9", "scale=0.91"}}), HasError("W613", "to become"));
  EXPECT_THAT(ErrorsOf(kOuters[2], {{"scale=0.25", "scale=0.26"}}), HasError("W613", "to become"));
  EXPECT_THAT(ErrorsOf(kOuters[2], {{"(X=[v]) role=optimize {scale=0.5}",
                                     "(X=[v]) role=optimize {scale=0.51}"}}),
              HasError("W613", "to become"));
}

TEST(OuterUpdates, SlowMoTakesTheRateOfTheParameter) {
  EXPECT_THAT(ErrorsOf(kOuters[2],
                       {{"Y=[lr]", "Y=[rate]"},
                        {"var lr : fp32[1] persistable", "var lr, rate : fp32[1] persistable"},
                        {"Input=[w, last, v, lr]", "Input=[w, last, v, rate]"}},
                       {{"var lr : fp32[1] persistable", "var lr, rate : fp32[1] persistable"},
                        {"    Out=[step] =",
                         "    Out=[rate] = fill_constant() {shape=longs[1], dtype=5, value=0.5}\n"
                         "    Out=[step] ="}}),
              HasError("W613", "it moves by rate times the velocity, expected lr"));
}

// A velocity of the gradient of each rank.
TEST(OuterUpdates, VelocityThatDiffersBetweenRanksIsRefused) {
  for (const Outer& outer : {kOuters[1], kOuters[2]}) {
    EXPECT_THAT(ErrorsOf(outer, {{"    Out=[w] = elementwise_sub(X=[last], Y=[w]) role=optimize "
                                  "{axis=-1}\n    Out=[w] = c_all",
                                  "    Out=[w] = elementwise_sub(X=[last], Y=[w]) role=optimize "
                                  "{axis=-1}\n    Out=[v] = elementwise_add(X=[v], Y=[w]) "
                                  "role=optimize {axis=-1}\n    Out=[w] = c_all"}}),
                HasError("W613", ""))
        << outer.claim;
  }
}

TEST(OuterUpdates, VelocityThatIsNotKeptIsRefused) {
  for (const Outer& outer : {kOuters[1], kOuters[2]}) {
    EXPECT_THAT(ErrorsOf(outer, {{"    Out=[last] = elementwise_sub",
                                  "    Out=[v] = fill_constant() role=optimize {shape=longs[4], "
                                  "dtype=5, value=0.0}\n    Out=[last] = elementwise_sub"}}),
                HasError("W613", ""))
        << outer.claim;
  }
}

// Of two ranks, only one has a velocity: what it keeps is no state of the other.
TEST(OuterUpdates, StateThatOnlyOneRankHasIsRefused) {
  for (const Outer& outer : {kOuters[1], kOuters[2]}) {
    SCOPED_TRACE(outer.claim);
    const Program original = ProgramOf(kOneDevice), whole = MainOf(outer),
                  startup = ProgramOf(kStartup);
    const Program other = MainOf({outer.claim, kSgd});
    VerifyOptions options = Claiming(outer.claim);
    options.original = {&original, nullptr};
    EXPECT_THAT(Lines(Verify({{&whole, &startup}, {&other, &startup}}, options), false),
                Contains(AllOf(HasSubstr("W613"), HasSubstr("rank 1"))));
  }
}

TEST(OuterUpdates, LastParameterThatIsNotKeptIsRefused) {
  ExpectErrors({{"    Out=[w] = assign(X=[last]) role=optimize\n",
                 "    Out=[w] = assign(X=[last]) role=optimize\n    Out=[last] = scale(X=[last]) "
                 "role=optimize {scale=2.0}\n"}},
               "W613", "no state of the program keeps that value");
}

TEST(OuterUpdates, StatesBeginWithTheParameterAndZero) {
  const auto start = [](const Outer& outer, absl::string_view from, absl::string_view to) {
    return ErrorsOf(outer, {}, {{from, to}});
  };
  for (const Outer& outer : kOuters) {
    SCOPED_TRACE(outer.claim);
    EXPECT_THAT(start(outer, "Out=[last] = assign(X=[w])",
                      "Out=[last] = fill_constant() {shape=longs[4], dtype=5, value=0.0}"),
                HasError("W606", "variable last: expected the value of w"));
    // Before rank 0 broadcasts the parameter.
    EXPECT_THAT(ErrorsOf(outer, {},
                         {{"    Out=[last] = assign(X=[w])\n", ""},
                          {"    Out=[w] = c_broadcast",
                           "    Out=[last] = assign(X=[w])\n    Out=[w] = c_broadcast"}}),
                HasError("W606", "variable last: expected the value of w"));
  }
  for (const Outer& outer : {kOuters[1], kOuters[2]}) {
    EXPECT_THAT(start(outer, "dtype=5, value=0.0", "dtype=5, value=1.0"),
                HasError("W606", "variable v: expected 0"));
  }
}

// --- Outer gradients that travel for several steps, and mixtures ---------------------------------

// Synchronizes w in every fourth step, by the outer gradient g of the step before, and keeps a
// quarter of the rank's own value.
constexpr absl::string_view kDelayed = R"(
    var w : fp32[4] parameter persistable
    var last, v, g : fp32[4] persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    var step : int64[1] persistable
    var k, none, three, rest : int64[1]
    var due, launch : bool[1]
    var scope, other : step_scopes
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr]) role=optimize
    Out=[step] = increment(X=[step]) role=optimize {step=1.0}
    Out=[k] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=4.0}
    Out=[none] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=0.0}
    Out=[three] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=3.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) role=optimize {axis=-1}
    Out=[due] = equal(X=[rest], Y=[none]) role=optimize
    Out=[launch] = equal(X=[rest], Y=[three]) role=optimize
    Out=[w, last, v, g], Scope=[scope] = conditional_block(Cond=[due], Input=[w, last, v, g, lr]) role=optimize {sub_block=block(1), is_scalar_condition=true}
    Out=[w, last, g], Scope=[other] = conditional_block(Cond=[launch], Input=[w, last, g]) role=optimize {sub_block=block(2), is_scalar_condition=true}
    block 1:
    var d : fp32[4]
    Out=[g] = c_wait_comm(X=[g]) role=optimize {ring_id=0}
    Out=[d] = assign(X=[g]) role=optimize
    MOVE
    Out=[last] = elementwise_sub(X=[last], Y=[d]) role=optimize {axis=-1}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.25}
    Out=[d] = scale(X=[last]) role=optimize {scale=0.75}
    Out=[w] = elementwise_add(X=[w], Y=[d]) role=optimize {axis=-1}
    block 2:
    Out=[g] = c_wait_comm(X=[g]) role=optimize {ring_id=0}
    Out=[g] = elementwise_sub(X=[last], Y=[w]) role=optimize {axis=-1}
    Out=[g] = scale(X=[g]) role=optimize {scale=0.5, nranks=2}
    Out=[g] = c_wait_compute(X=[g]) role=optimize {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) role=optimize {ring_id=0, use_calc_stream=false}
)";

std::vector<std::string> ErrorsOfDelayed(const Outer& outer, const Edits& edits = {}, int delay = 1,
                                         double mix = 0.25) {
  const std::string move = absl::StrReplaceAll(outer.move, {{"[w]", "[d]"}});
  Edits all = {{"MOVE", move}};
  all.insert(all.end(), edits.begin(), edits.end());
  const Edits of_startup = {
      {"var last, v : fp32[4] persistable", "var last, v, g : fp32[4] persistable"},
      {"    Out=[step] =",
       "    Out=[g] = fill_constant() {shape=longs[4], dtype=5, value=0.0}\n    Out=[step] ="}};
  const Program original = ProgramOf(kOneDevice), original_startup = ProgramOf(kOneDeviceStartup),
                program = ProgramOf(kDelayed, all), startup = ProgramOf(kStartup, of_startup);
  VerifyOptions options = Claiming(outer.claim);
  options.setting.averaging->period = 4;
  options.setting.averaging->delay = delay;
  options.setting.averaging->mix = mix;
  options.original = {&original, &original_startup};
  return Lines(Verify({{&program, &startup}}, options));
}

void ExpectErrorsOfDelayed(const Edits& edits, absl::string_view rule, absl::string_view text) {
  for (const Outer& outer : kOuters) {
    SCOPED_TRACE(outer.claim);
    EXPECT_THAT(ErrorsOfDelayed(outer, edits), HasError(rule, text));
  }
}

TEST(OuterUpdates, DelaysAndMixturesAreVerified) {
  for (const Outer& outer : kOuters) EXPECT_THAT(ErrorsOfDelayed(outer), IsEmpty()) << outer.claim;
}

// Without the original, what ranks average must reach the parameter.
TEST(OuterUpdates, DelayedParameterIsMadeOfAMean) {
  const auto errors_of = [](const Edits& edits) {
    Edits all = {{"MOVE", ""}};
    all.insert(all.end(), edits.begin(), edits.end());
    const Program program = ProgramOf(kDelayed, all),
                  startup = ProgramOf(kStartup, {{"var last, v : fp32[4] persistable",
                                                  "var last, v, g : fp32[4] persistable"},
                                                 {"    Out=[step] =",
                                                  "    Out=[g] = fill_constant() {shape=longs[4], "
                                                  "dtype=5, value=0.0}\n    Out=[step] ="}});
    VerifyOptions options = Claiming("sgd{lr=1}");
    options.setting.averaging->period = 4;
    options.setting.averaging->delay = 1;
    return Lines(Verify({{&program, &startup}}, options));
  };
  EXPECT_THAT(errors_of({}), Not(HasError("W310", "")));
  EXPECT_THAT(errors_of({{"Out=[d] = assign(X=[g])", "Out=[d] = assign(X=[v])"}}),
              HasError("W310", "updates w by x"));
  EXPECT_THAT(errors_of({{"    Out=[g] = c_allreduce_sum(X=[g]) role=optimize {ring_id=0, "
                          "use_calc_stream=false}\n",
                          ""}}),
              HasError("W310", "updates w by x"));
}

TEST(OuterUpdates, AnotherDelayOrMixtureIsNeitherOfThem) {
  for (const Outer& outer : kOuters) {
    EXPECT_THAT(ErrorsOfDelayed(outer, {}, /*delay=*/2),
                HasError("W605", "its outer gradient is taken on condition"));
    EXPECT_THAT(ErrorsOfDelayed(outer, {}, /*delay=*/0), HasError("W613", "variable w"));
    EXPECT_THAT(ErrorsOfDelayed(outer, {}, /*delay=*/1, /*mix=*/0.5), HasError("W613", "keeps"));
    EXPECT_THAT(ErrorsOfDelayed(outer, {}, /*delay=*/1, /*mix=*/0), HasError("W613", "keeps"));
  }
}

TEST(OuterUpdates, GradientOfAnotherStepIsRefused) {
  ExpectErrorsOfDelayed({{"dtype=3, value=3.0", "dtype=3, value=2.0"}}, "W605",
                        "which holds in step 2, expected 1 step before each synchronization");
  // In the step that synchronizes, too.
  ExpectErrorsOfDelayed({{"Cond=[launch]", "Cond=[due]"}}, "W613", "");
}

TEST(OuterUpdates, DelayedGradientOfOneRankIsRefused) {
  ExpectErrorsOfDelayed(
      {{"c_allreduce_sum(X=[g])", "c_broadcast(X=[g])"}, {"{scale=0.5, nranks=2}", "{scale=1.0}"}},
      "W613", "expected it equal on all ranks");
}

TEST(OuterUpdates, DelayedSumInsteadOfAMeanIsRefused) {
  ExpectErrorsOfDelayed({{"    Out=[g] = scale(X=[g]) role=optimize {scale=0.5, nranks=2}\n", ""}},
                        "W613", "outer gradient g to become");
}

TEST(OuterUpdates, UseOfWhatIsStillOnItsWayIsARace) {
  ExpectErrorsOfDelayed(
      {{"    Out=[g] = c_wait_comm(X=[g]) role=optimize {ring_id=0}\n    Out=[d]", "    Out=[d]"}},
      "W401", "reads g on the compute stream in the next step");
}

TEST(OuterUpdates, GradientThatIsUsedUpIsRefused) {
  ExpectErrorsOfDelayed({{"    Out=[w] = scale(X=[w]) role=optimize {scale=0.25}",
                          "    Out=[g] = scale(X=[g]) role=optimize {scale=0.5}\n    Out=[w] = "
                          "scale(X=[w]) role=optimize {scale=0.25}"}},
                        "W613", "");
}

TEST(OuterUpdates, MixtureOfOtherSharesIsRefused) {
  ExpectErrorsOfDelayed(
      {{"(X=[w]) role=optimize {scale=0.25}", "(X=[w]) role=optimize {scale=0.5}"}}, "W613",
      "no state of the program keeps the part of it that ranks share");
  ExpectErrorsOfDelayed({{"scale=0.75", "scale=0.5"}}, "W613",
                        "no state of the program keeps the part of it that ranks share");
}

// --- Outer gradients that are rounded ------------------------------------------------------------

// The ops that send w, of kSynchronized, and those that send it in bf16.
constexpr absl::string_view kSend =
    R"(    Out=[w] = c_allreduce_sum(X=[w]) role=optimize {ring_id=0, use_calc_stream=true}
    Out=[w] = scale(X=[w]) role=optimize {scale=0.5, nranks=2}
)";
constexpr absl::string_view kSendRounded = R"(    var q : bf16[4]
    Out=[w] = scale(X=[w]) role=optimize {scale=0.5, nranks=2}
    Out=[w] = elementwise_add(X=[w], Y=[e]) role=optimize {axis=-1}
    Out=[q] = cast(X=[w]) role=optimize {in_dtype=5, out_dtype=22}
    Out=[e] = cast(X=[q]) role=optimize {in_dtype=22, out_dtype=5}
    Out=[e] = elementwise_sub(X=[w], Y=[e]) role=optimize {axis=-1}
    Out=[q] = c_allreduce_sum(X=[q]) role=optimize {ring_id=0, use_calc_stream=true}
    Out=[w] = cast(X=[q]) role=optimize {in_dtype=22, out_dtype=5}
)";

std::vector<std::string> ErrorsOfRounded(
    const Outer& outer, const Edits& edits = {}, const char* error_begins = "value=0.0",
    AveragingSchedule::Sent sent = AveragingSchedule::Sent::kBf16) {
  Edits all = {{kSend, kSendRounded},
               {"var last, v : fp32[4]", "var last, v, e : fp32[4]"},
               {"Out=[w, last, v], Scope", "Out=[w, last, v, e], Scope"},
               {"Input=[w, last, v, lr]", "Input=[w, last, v, e, lr]"}};
  all.insert(all.end(), edits.begin(), edits.end());
  const Program original = ProgramOf(kOneDevice), original_startup = ProgramOf(kOneDeviceStartup),
                program = MainOf(outer, all),
                startup = ProgramOf(kStartup,
                                    {{"var last, v : fp32[4]", "var last, v, e : fp32[4]"},
                                     {"    Out=[step] =",
                                      absl::StrCat("    Out=[e] = fill_constant() {shape=longs[4], "
                                                   "dtype=5, ",
                                                   error_begins, "}\n    Out=[step] =")}});
  VerifyOptions options = Claiming(outer.claim);
  options.setting.averaging->sent = sent;
  options.original = {&original, &original_startup};
  return Lines(Verify({{&program, &startup}}, options));
}

void ExpectErrorsOfRounded(const Edits& edits, absl::string_view rule, absl::string_view text) {
  for (const Outer& outer : kOuters) {
    SCOPED_TRACE(outer.claim);
    EXPECT_THAT(ErrorsOfRounded(outer, edits), HasError(rule, text));
  }
}

TEST(OuterUpdates, WhatIsSentAndWhatIsKeptAreTheOuterGradient) {
  for (const Outer& outer : kOuters) EXPECT_THAT(ErrorsOfRounded(outer), IsEmpty()) << outer.claim;
}

TEST(OuterUpdates, RoundingIsClaimed) {
  for (const Outer& outer : kOuters) {
    SCOPED_TRACE(outer.claim);
    EXPECT_THAT(ErrorsOfRounded(outer, {}, "value=0.0", AveragingSchedule::Sent::kNative),
                HasError("W613", ""));
    EXPECT_THAT(ErrorsOfRounded(outer, {}, "value=0.0", AveragingSchedule::Sent::kFp16),
                HasError("W613", "what is sent and what is kept"));
    VerifyOptions options = Claiming(outer.claim);
    options.setting.averaging->sent = AveragingSchedule::Sent::kBf16;
    const Program original = ProgramOf(kOneDevice), program = MainOf(outer),
                  startup = ProgramOf(kStartup);
    options.original = {&original, nullptr};
    EXPECT_THAT(Lines(Verify({{&program, &startup}}, options)),
                HasError("W613", "no state of the program is what rounding to bf16 took"));
  }
}

TEST(OuterUpdates, LostErrorIsRefused) {
  // It is not added.
  ExpectErrorsOfRounded(
      {{"    Out=[w] = elementwise_add(X=[w], Y=[e]) role=optimize {axis=-1}\n    Out=[q]",
        "    Out=[q]"}},
      "W613", "no state of the program is what rounding to bf16 took");
  // It is what was sent.
  ExpectErrorsOfRounded(
      {{"    Out=[e] = elementwise_sub(X=[w], Y=[e]) role=optimize {axis=-1}\n", ""}}, "W613",
      "what is sent and what is kept are not the outer gradient");
  // Of the other sign.
  ExpectErrorsOfRounded(
      {{"Out=[e] = elementwise_sub(X=[w], Y=[e])", "Out=[e] = elementwise_sub(X=[e], Y=[w])"}},
      "W613", "what is sent and what is kept are not the outer gradient");
  // It fades.
  ExpectErrorsOfRounded({{"    Out=[q] = c_allreduce_sum",
                          "    Out=[e] = scale(X=[e]) role=optimize {scale=0.5}\n    Out=[q] = "
                          "c_allreduce_sum"}},
                        "W613", "what is sent and what is kept are not the outer gradient");
}

TEST(OuterUpdates, SumOfRoundedGradientsIsTheirMean) {
  ExpectErrorsOfRounded(
      {{"    Out=[w] = scale(X=[w]) role=optimize {scale=0.5, nranks=2}\n    Out=[w] = element",
        "    Out=[w] = element"}},
      "W613", "");
  // Of one rank.
  ExpectErrorsOfRounded({{"Out=[q] = c_allreduce_sum(X=[q])", "Out=[q] = c_broadcast(X=[q])"}},
                        "W613", "");
}

TEST(OuterUpdates, ErrorBeginsWithZero) {
  for (const Outer& outer : kOuters) {
    EXPECT_THAT(ErrorsOfRounded(outer, {}, "value=1.0"), HasError("W606", "variable e: expected 0"))
        << outer.claim;
  }
}

}  // namespace
}  // namespace weft::testing
