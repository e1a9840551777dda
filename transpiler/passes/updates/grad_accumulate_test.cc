#include "transpiler/passes/updates/grad_accumulate.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kBackward[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = reduce_mean(X=[y]) role=loss {reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true}
)";
constexpr char kPaired[] =
    "Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward "
    "vars=[w, w@GRAD]\n";
constexpr char kUnpaired[] =
    "Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n";
constexpr char kDeclarations[] = R"(
    var x : fp32[-1, 2] need_check_feed
)";
constexpr char kSgd[] =
    "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize "
    "vars=[w, w@GRAD]\n";
constexpr char kStartup[] = R"(
    var w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
)";

// With ops between backward and the update, and the update.
ProgramTexts Training(const std::string& update = kSgd, const std::string& declarations = "") {
  return {absl::StrCat(kDeclarations, declarations, kBackward, kPaired, update), kStartup};
}

// The set-up of rings is left out.
RewriteOptions WithoutSetUp() {
  RewriteOptions options;
  options.verification = Verification::kNever;
  return options;
}
constexpr char kWeight[] = R"(
    var w : fp32[2, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
)";

// What the startup program begins with, and the main program counts by.
constexpr char kNewStates[] = R"(
    var w@GRAD@ACCUMULATED : fp32[2, 2] persistable stop_gradient
    var accumulate_step : int64[1] persistable stop_gradient
)";
constexpr char kInitialized[] = R"(
    Out=[w@GRAD@ACCUMULATED] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0, str_value="0"}
    Out=[accumulate_step] = fill_constant() {shape=longs[1], dtype=3, value=0.0, str_value="0"}
)";
constexpr char kNewTemporaries[] = R"(
    var accumulate_k, accumulate_remainder, accumulate_zero : int64[1] stop_gradient
    var accumulate_is_due : bool[1] stop_gradient
    var accumulate_scope : step_scopes
)";
// K stands for the number of steps.
constexpr char kAccumulated[] = R"(
    Out=[w@GRAD@ACCUMULATED] = elementwise_add(X=[w@GRAD@ACCUMULATED], Y=[w@GRAD]) role=backward vars=[w, w@GRAD@ACCUMULATED]
    Out=[accumulate_step] = increment(X=[accumulate_step]) role=optimize
    Out=[accumulate_k] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=K.0, str_value="K"}
    Out=[accumulate_remainder] = elementwise_mod(X=[accumulate_step], Y=[accumulate_k]) role=optimize
    Out=[accumulate_zero] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=0.0, str_value="0"}
    Out=[accumulate_is_due] = equal(X=[accumulate_remainder], Y=[accumulate_zero]) role=optimize
)";
constexpr char kReset[] =
    "Out=[w@GRAD@ACCUMULATED] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, "
    "value=0.0, str_value=\"0\"}\n";

std::string Accumulated(int k) {
  return absl::StrReplaceAll(kAccumulated, {{"K", absl::StrCat(k)}});
}
std::string Startup() { return absl::StrCat(kStartup, kNewStates, kInitialized); }

// --- What is written -----------------------------------------------------------------------------

TEST(GradAccumulate, EveryFourthStepUpdatesByTheSumOfFour) {
  const auto result = ExpectRewrite(
      "grad-accumulate{k=4}", Training(),
      {absl::StrCat(kNewStates, kNewTemporaries, kBackward, kUnpaired, Accumulated(4), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    )",
                    kSgd, kReset),
       Startup()});
  EXPECT_THAT(RemarkTexts(result),
              ElementsAre("w@GRAD accumulated: gradient of w in=w@GRAD@ACCUMULATED steps=4 scaled "
                          "by=1"));
}

TEST(GradAccumulate, TheMeanDivides) {
  ExpectRewrite("grad-accumulate{k=8,average=true}", Training(),
                {absl::StrCat(kNewStates, kNewTemporaries, kBackward, kUnpaired, Accumulated(8), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize {scale=0.125}
    )",
                              kSgd, kReset),
                 Startup()});
}

// A sum over the batch: the mean of k sums is the k-th part of the sum over all samples.
TEST(GradAccumulate, TheAverageOfOtherLossesThanMeansIsAWarning) {
  const auto messages = [](absl::string_view loss, absl::string_view options) {
    ProgramTexts texts = Training();
    texts.main = absl::StrReplaceAll(texts.main, {{"reduce_mean", loss}});
    return testing::ResultLines(
        Rewrite(absl::StrCat("grad-accumulate{k=2", options, "}"), texts).result.messages);
  };
  EXPECT_THAT(messages("reduce_sum", ",average=true"),
              ElementsAre(AllOf(HasSubstr("warning: loss loss is no mean over the batch"),
                                HasSubstr("but 1/2 of it"))));
  EXPECT_THAT(messages("reduce_mean", ",average=true"), IsEmpty());
  EXPECT_THAT(messages("reduce_sum", ""), IsEmpty());
}

// m is no data of the batch in kDeclarations: the number of rows that count is.
ProgramTexts Divided(const std::string& loss, const std::string& make_divisor = "") {
  ProgramTexts texts = Training(kSgd, R"(
    var mask : fp32[-1, 1] need_check_feed
    var c, d, e, s, loss, loss@GRAD, s@GRAD : fp32[]
)");
  texts.main = absl::StrReplaceAll(
      texts.main,
      {{"    Out=[loss] = reduce_mean(X=[y]) role=loss {reduce_all=true}\n",
        absl::StrCat("    Out=[s] = reduce_sum(X=[y]) {reduce_all=true}\n"
                     "    Out=[c] = reduce_sum(X=[mask]) {reduce_all=true}\n",
                     make_divisor, loss)},
       {"    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward "
        "{reduce_all=true}\n",
        "    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[s@GRAD]) role=backward "
        "{reduce_all=true}\n"}});
  return texts;
}

TEST(GradAccumulate, OneDivisorOfTheWholeLossIsAccumulated) {
  constexpr char kGrad[] =
      "    X@GRAD=[s@GRAD] = elementwise_div_grad(X=[s], Y=[c], Out=[loss], Out@GRAD=[loss@GRAD]) "
      "role=backward\n";
  const auto messages = [&](const std::string& loss, absl::string_view options,
                            const std::string& make = "") {
    ProgramTexts texts = Divided(loss, make);
    texts.main = absl::StrReplaceAll(
        texts.main, {{"    X@GRAD=[y@GRAD]", absl::StrCat(kGrad, "    X@GRAD=[y@GRAD]")}});
    const std::string pass = absl::StrCat("grad-accumulate{k=2", options, "}");
    const absl::Status status = RewriteStatus(pass, texts);
    if (!status.ok()) return std::vector<std::string>{std::string(status.message())};
    return testing::ResultLines(Rewrite(pass, texts).result.messages);
  };
  constexpr char kQuotient[] = "    Out=[loss] = elementwise_div(X=[s], Y=[c]) role=loss\n";
  constexpr char kExact[] = ",average=true,exact_loss=true";
  EXPECT_THAT(messages(kQuotient, ",average=true"),
              ElementsAre(AllOf(HasSubstr("loss loss is no mean over the batch after op 3 "
                                          "(elementwise_div): the average"),
                                HasSubstr("; exact_loss=true accumulates the divisor"))));
  EXPECT_THAT(messages(kQuotient, kExact), IsEmpty());
  // A term that is a mean, whatever counts.
  constexpr char kPlusMean[] =
      "    Out=[e] = elementwise_div(X=[s], Y=[c])\n    Out=[d] = reduce_mean(X=[y]) "
      "{reduce_all=true}\n    Out=[loss] = elementwise_add(X=[e], Y=[d]) role=loss\n";
  EXPECT_THAT(messages(kPlusMean, kExact),
              ElementsAre(HasSubstr("exact_loss: loss loss: expected a sum over the batch that is "
                                    "divided by a number of the batch, found")));
  // A term that is a sum, and one divisor of two.
  constexpr char kClip[] = "    Out=[d] = clip(X=[c]) {min=1.0, max=100.0}\n";
  constexpr char kPlusSum[] =
      "    Out=[e] = elementwise_div(X=[s], Y=[d])\n"
      "    Out=[loss] = elementwise_add(X=[e], Y=[s]) role=loss\n";
  EXPECT_THAT(messages(kPlusSum, kExact, kClip),
              ElementsAre(HasSubstr("found terms that d does not divide, or divides twice")));
  constexpr char kTwo[] =
      "    Out=[s@GRAD] = clip(X=[c]) {min=2.0, max=100.0}\n"
      "    Out=[e] = elementwise_div(X=[s], Y=[d])\n"
      "    Out=[s@GRAD] = elementwise_div(X=[s], Y=[s@GRAD])\n"
      "    Out=[loss] = elementwise_add(X=[e], Y=[s@GRAD]) role=loss\n";
  EXPECT_THAT(messages(kTwo, kExact, kClip),
              ElementsAre(HasSubstr("expected a sum over the batch that is divided by a number")));
  EXPECT_THAT(messages(kQuotient, ",exact_loss=true"),
              ElementsAre(HasSubstr("expected average=true, and no scale_sense")));
  EXPECT_THAT(messages("    Out=[loss] = scale(X=[s]) role=loss\n", kExact),
              ElementsAre(HasSubstr("found a sum over the batch; leave out average")));
}

TEST(GradAccumulate, ScaleSenseIsAVariableThatDivides) {
  constexpr char kScaleSense[] = "    var scale_sense : fp32[1] persistable stop_gradient\n";
  const auto result = ExpectRewrite(
      "grad-accumulate{k=2,scale_sense=4,average=true}", Training(),
      {absl::StrCat(kNewStates, kNewTemporaries, kScaleSense, kBackward, kUnpaired, Accumulated(2),
                    R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr, scale_sense]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    var scale_sense@TIMES_K, scale_sense@RECIPROCAL : fp32[1]
    Out=[scale_sense@TIMES_K] = scale(X=[scale_sense]) role=optimize {scale=2.0}
    Out=[scale_sense@RECIPROCAL] = reciprocal(X=[scale_sense@TIMES_K]) role=optimize
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD@ACCUMULATED], Y=[scale_sense@RECIPROCAL]) role=optimize
    )",
                    kSgd, kReset),
       absl::StrCat(kStartup, kScaleSense, kNewStates,
                    "    Out=[scale_sense] = fill_constant() {shape=longs[1], dtype=5, value=4.0, "
                    "str_value=\"4\"}\n",
                    kInitialized)});
  EXPECT_THAT(RemarkTexts(result), ElementsAre(HasSubstr("scaled by=1 / 2 scale_sense")));
}

constexpr char kSchedule[] = R"(
    Out=[count] = increment(X=[count]) role=lr_sched {step=1.0}
    Out=[countf] = cast(X=[count]) role=lr_sched {in_dtype=3, out_dtype=5}
    Out=[rate] = scale(X=[countf]) role=lr_sched {scale=0.5}
)";
constexpr char kClipAndUpdate[] = R"(
    Out=[w@GRAD] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate]) role=optimize vars=[w, w@GRAD]
)";
constexpr char kScheduleVars[] = R"(
    var count : int64[1] persistable
)";
constexpr char kScheduleStartup[] = R"(
    var w : fp32[2, 2] parameter persistable
    var count : int64[1] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[count] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
)";

// A schedule counts updates, although it stands before backward.
TEST(GradAccumulate, ScheduleAndClippingRunWithTheUpdate) {
  ExpectRewrite(
      "grad-accumulate{k=3}",
      {absl::StrCat(kDeclarations, kScheduleVars, kSchedule, kBackward, kPaired, kClipAndUpdate),
       kScheduleStartup},
      {absl::StrCat(kNewStates, kNewTemporaries, kBackward, kUnpaired, Accumulated(3), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, count, countf, rate, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, count, w]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    )",
                    kSchedule, kClipAndUpdate, kReset),
       absl::StrCat(kScheduleStartup, kNewStates, kInitialized)});
}

TEST(GradAccumulate, UpdateByGradientsThatAreNotFiniteIsSkippedAndTheyAreReset) {
  ExpectRewrite("grad-accumulate{k=2,skip_nonfinite=true}", Training(),
                {absl::StrCat(kNewStates, kNewTemporaries, kBackward, kUnpaired, Accumulated(2), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    var accumulate_one : fp32[1]
    var accumulate_found_nonfinite, accumulate_is_finite : bool[1]
    var accumulate_finite_scope : step_scopes
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    Out=[accumulate_one] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=1.0, str_value="1"}
    FoundInfinite=[accumulate_found_nonfinite], Out=[w@GRAD] = check_finite_and_unscale(Scale=[accumulate_one], X=[w@GRAD]) role=optimize
    Out=[accumulate_is_finite] = logical_not(X=[accumulate_found_nonfinite]) role=optimize
    Out=[w], Scope=[accumulate_finite_scope] = conditional_block(Cond=[accumulate_is_finite], Input=[w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(2)}
    )",
                              kReset, "  block 2 parent=1:\n", kSgd),
                 Startup()});
}

constexpr char kHalfVars[] = R"(
    var x : fp16[-1, 2] need_check_feed
    var loss : fp16[]
)";
constexpr char kHalf[] = R"(
    Out=[w16] = cast(X=[w]) {in_dtype=5, out_dtype=4}
    Out=[y] = mul(X=[x], Y=[w16])
    Out=[loss] = reduce_mean(X=[y]) role=loss {reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=4, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true}
)";

// Mixed precision: the cast of the gradient stays in every step, so that sums are fp32.
TEST(GradAccumulate, GradientIsAccumulatedInThePrecisionThatItIsCastTo) {
  constexpr char kPair[] =
      "Y@GRAD=[w16@GRAD] = mul_grad(X=[x], Y=[w16], Out@GRAD=[y@GRAD]) role=backward ";
  const auto cast = [&](const char* role) {
    return absl::StrCat("Out=[w@GRAD] = cast(X=[w16@GRAD]) role=", role,
                        " {in_dtype=4, out_dtype=5}\n");
  };
  ExpectRewrite(
      "grad-accumulate{k=2}",
      {absl::StrCat(kHalfVars, kHalf, kPair, "vars=[w, w16@GRAD]\n", cast("optimize"), kSgd),
       kStartup},
      {absl::StrCat(kNewStates, kNewTemporaries, kHalf, kPair, "\n", cast("backward"),
                    Accumulated(2), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    )",
                    kSgd, kReset),
       Startup()});
}

// As with master weights: the update takes the gradient in half precision.
TEST(GradAccumulate, GradientOfHalfPrecisionIsAccumulatedInSingle) {
  constexpr char kVars[] = R"(
    var h : fp16[2, 2] parameter persistable
    var rate : fp16[1] persistable
  )";
  constexpr char kStart[] = R"(
    var h : fp16[2, 2] parameter persistable
    var rate : fp16[1] persistable
    Out=[h] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.5}
    Out=[rate] = fill_constant() {shape=longs[1], dtype=4, value=0.5}
  )";
  const std::string half = absl::StrReplaceAll(
      kHalf, {{"    Out=[w16] = cast(X=[w]) {in_dtype=5, out_dtype=4}\n", ""}, {"w16", "h"}});
  const std::string vars = absl::StrCat(kHalfVars, kVars);
  constexpr char kGrad[] =
      "Y@GRAD=[h@GRAD] = mul_grad(X=[x], Y=[h], Out@GRAD=[y@GRAD]) role=backward ";
  constexpr char kUpdate[] =
      "ParamOut=[h] = sgd(Param=[h], Grad=[h@GRAD], LearningRate=[rate]) role=optimize "
      "vars=[h, h@GRAD]\n";
  const auto for_h = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"w@GRAD", "h@GRAD"}, {"[w,", "[h,"}});
  };
  ExpectRewrite(
      "grad-accumulate{k=2,average=true}",
      {absl::StrCat(vars, half, kGrad, "vars=[h, h@GRAD]\n", kUpdate), kStart},
      {absl::StrCat(for_h(kNewStates), kNewTemporaries, "    var h@GRAD@FP32 : fp32[2, 2]\n", half,
                    kGrad, "\n",
                    "Out=[h@GRAD@FP32] = cast(X=[h@GRAD]) role=backward {in_dtype=4, "
                    "out_dtype=5}\n",
                    absl::StrReplaceAll(for_h(Accumulated(2)), {{"Y=[h@GRAD]", "Y=[h@GRAD@FP32]"}}),
                    R"(
    Out=[h@GRAD@ACCUMULATED, h@GRAD, h], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[h@GRAD@ACCUMULATED, h, rate]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    var h@GRAD@SCALED : fp32[2, 2]
    Out=[h@GRAD@SCALED] = scale(X=[h@GRAD@ACCUMULATED]) role=optimize {scale=0.5}
    Out=[h@GRAD] = cast(X=[h@GRAD@SCALED]) role=optimize {in_dtype=5, out_dtype=4}
    )",
                    kUpdate, for_h(kReset)),
       absl::StrCat(kStart, for_h(kNewStates), for_h(kInitialized))});
}

TEST(GradAccumulate, RanksReduceWhatIsAccumulatedWhereItIsUsed) {
  ExpectRewrite("grad-accumulate{k=4},grad-all-reduce", Training(),
                {absl::StrCat(kNewStates, kNewTemporaries, kBackward, kUnpaired, Accumulated(4), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD@ACCUMULATED] = c_wait_compute(X=[w@GRAD@ACCUMULATED]) role=backward
    Out=[w@GRAD@ACCUMULATED] = c_allreduce_avg(X=[w@GRAD@ACCUMULATED]) role=backward
    Out=[w@GRAD@ACCUMULATED] = c_wait_comm(X=[w@GRAD@ACCUMULATED]) role=backward
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    )",
                              kSgd, kReset),
                 Startup()},
                WithoutSetUp());
}

// --- form=sharded --------------------------------------------------------------------------------

constexpr char kMerging[] = R"(
    var merged : fp32[2, 2] persistable
    var due : bool[1] need_check_feed
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward
    Out=[merged] = elementwise_add(X=[merged], Y=[w@GRAD]) role=backward vars=[w, merged]
    Out=[w, merged], Scope=[scope] = conditional_block(Cond=[due], Input=[merged, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
)";
constexpr char kMergedUpdate[] = R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[merged], LearningRate=[lr]) role=optimize vars=[w, merged]
    Out=[merged] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0}
)";

constexpr char kMergingStartup[] = R"(
    var merged : fp32[2, 2] persistable
    Out=[merged] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
)";

TEST(GradAccumulate, WhatTheProgramAccumulatesIsScaledWhereItIsUsed) {
  RewriteOptions options;
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("grad-accumulate{form=sharded,scale_sense=4}",
                {absl::StrCat(kDeclarations, kBackward, kMerging, kMergedUpdate),
                 absl::StrCat(kStartup, kMergingStartup)},
                {R"(
  + var scale_sense : fp32[1] persistable stop_gradient
  - Out=[w, merged], Scope=[scope] = conditional_block(Cond=[due], Input=[merged, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + Out=[w, merged], Scope=[scope] = conditional_block(Cond=[due], Input=[merged, w, lr, scale_sense]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    block 1:
  + var scale_sense@RECIPROCAL : fp32[1]
  + Out=[scale_sense@RECIPROCAL] = reciprocal(X=[scale_sense]) role=optimize
  + Out=[merged] = elementwise_mul(X=[merged], Y=[scale_sense@RECIPROCAL]) role=optimize
  )",
                 R"(
  + var scale_sense : fp32[1] persistable stop_gradient
    Out=[merged] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[scale_sense] = fill_constant() {shape=longs[1], dtype=5, value=4.0, str_value="4"}
  )"},
                options);
}

TEST(GradAccumulate, ShardedFormNeedsAccumulatedGradientsAndNoSteps) {
  EXPECT_THAT(RewriteStatus("grad-accumulate{form=sharded}", Training()),
              StatusIs(kRefused, HasSubstr("gradient w@GRAD is not accumulated")));
  EXPECT_THAT(RewriteStatus("grad-accumulate{form=sharded,k=2}", Training()),
              StatusIs(kInvalid, HasSubstr("expected no k")));
}

// --- Refusals ------------------------------------------------------------------------------------

TEST(GradAccumulate, OptionsAreChecked) {
  for (const char* options :
       {"k=0", "k=-1", "k=1.5", "scale_sense=0", "scale_sense=inf", "scale_sense=nan",
        "scale_sense=1e-60", "scale_sense=x", "form=gathered", "average=2",
        "scale_sense=1e38,k=2000000000,average=true"}) {
    EXPECT_THAT(RewriteStatus(absl::StrCat("grad-accumulate{", options, "}"), Training()),
                StatusIs(kInvalid, HasSubstr("expected")))
        << options;
  }
}

absl::Status StatusOf(const std::string& update, const std::string& declarations = "",
                      const std::string& options = "k=2") {
  return RewriteStatus(absl::StrCat("grad-accumulate{", options, "}"),
                       Training(update, declarations));
}

TEST(GradAccumulate, StartupProgramIsNeeded) {
  ProgramTexts texts = Training();
  texts.startup.reset();
  EXPECT_THAT(RewriteStatus("grad-accumulate{k=2}", texts),
              StatusIs(kRefused, HasSubstr("needs the startup program")));
}

TEST(GradAccumulate, ProgramWithoutUpdatesHasNothingToAccumulate) {
  EXPECT_THAT(StatusOf(""), StatusIs(kRefused, HasSubstr("no gradient to accumulate")));
}

TEST(GradAccumulate, GradientsThatAreAccumulatedOrReducedAreNotAccumulatedAgain) {
  // One that is persistable, and that each step makes anew, is not accumulated.
  WEFT_EXPECT_OK(StatusOf(kSgd, "    var w@GRAD : fp32[2, 2] persistable\n"));
  EXPECT_THAT(
      RewriteStatus("grad-accumulate{k=2},grad-accumulate{k=2}", Training()),
      StatusIs(kRefused, HasSubstr("pass grad-accumulate cannot run: gradients-accumulated")));
  EXPECT_THAT(RewriteStatus("grad-all-reduce,grad-accumulate{k=2}", Training()),
              StatusIs(kRefused, HasSubstr("pass grad-accumulate cannot run: gradients-reduced")));
}

TEST(GradAccumulate, SparseGradientIsRefused) {
  EXPECT_THAT(StatusOf(kSgd, "    var w@GRAD : selected_rows<fp32[2, 2]>\n"),
              StatusIs(kRefused, HasSubstr("completes gradient w@GRAD of parameter w: expected a "
                                           "dense tensor to accumulate, found rows fp32[2, 2]")));
}

TEST(GradAccumulate, GradientOfUnknownDimensionsIsRefused) {
  EXPECT_THAT(
      StatusOf(kSgd, "    var w@GRAD : fp32[-1, 2]\n"),
      StatusIs(
          kRefused,
          HasSubstr("expected a tensor of known dimensions to accumulate, found fp32[-1, 2]")));
}

// Clipping that has lost its role would clip the gradient of each step, not their sum.
TEST(GradAccumulate, UseOfAGradientInEveryStepIsRefused) {
  EXPECT_THAT(StatusOf(absl::StrCat(
                  "Out=[w@GRAD] = clip(X=[w@GRAD]) role=forward {min=-1.0, max=1.0}\n", kSgd)),
              StatusIs(kRefused, HasSubstr("op 5 (clip) uses gradient w@GRAD in every step")));
}

TEST(GradAccumulate, UpdateByAValueOfOneStepIsRefused) {
  EXPECT_THAT(
      StatusOf(absl::StrCat("Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[loss]) role=optimize "
                            "{axis=-1}\n",
                            kSgd)),
      StatusIs(kRefused, HasSubstr("op 5 (elementwise_mul) reads loss, which op 1 (reduce_mean) "
                                   "computes in every step")));
  EXPECT_THAT(
      StatusOf(absl::StrCat("Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[mask]) role=optimize "
                            "{axis=-1}\n",
                            kSgd)),
      StatusIs(kRefused, HasSubstr("reads mask, which is fed")));
}

TEST(GradAccumulate, ConstantsAndRatesThatAreFedServeTheUpdate) {
  WEFT_EXPECT_OK(RewriteStatus(
      "grad-accumulate{k=2}",
      {absl::StrCat(kDeclarations, "    var lr : fp32[1] need_check_feed\n", kBackward, kPaired,
                    "Out=[bound] = fill_constant() role=forward {shape=longs[2, 2], dtype=5, "
                    "value=1.0}\n",
                    "Out=[w@GRAD] = elementwise_min(X=[w@GRAD], Y=[bound]) role=optimize "
                    "{axis=-1}\n",
                    kSgd),
       kWeight}));
}

TEST(GradAccumulate, OpOfEveryStepThatDependsOnTheUpdateIsRefused) {
  EXPECT_THAT(StatusOf(absl::StrCat(kSgd, "Out=[norm] = reduce_sum(X=[w]) {reduce_all=true}\n")),
              StatusIs(kRefused, HasSubstr("op 6 (reduce_sum) reads w in every step, after op 5 "
                                           "(sgd), which is of the update, writes it")));
  EXPECT_THAT(
      StatusOf(absl::StrCat(kSgd, "Out=[lr] = scale(X=[lr]) {scale=0.5}\n")),
      StatusIs(kRefused, HasSubstr("op 6 (scale) writes lr in every step, after op 5 (sgd), "
                                   "which is of the update, reads it")));
}

// A second parameter is trained by ops that say nothing of an update.
TEST(GradAccumulate, UpdateByHandInEveryStepIsRefused) {
  const auto status_of = [](const char* declaration, const char* update) {
    return StatusOf(absl::StrCat("Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[y@GRAD]) "
                                 "role=backward\n",
                                 update, kSgd),
                    declaration);
  };
  constexpr char kMarked[] = "    var v : fp32[2, 2] parameter persistable\n";
  constexpr char kUnmarked[] = "    var v : fp32[2, 2] persistable\n";
  constexpr char kInPlace[] = "Out=[v] = elementwise_sub(X=[v], Y=[v@GRAD]) {axis=-1}\n";
  constexpr char kThroughAnother[] =
      "Out=[v.new] = elementwise_sub(X=[v], Y=[v@GRAD]) {axis=-1}\n"
      "Out=[v] = assign(X=[v.new])\n";
  for (const char* declaration : {kMarked, kUnmarked}) {
    EXPECT_THAT(status_of(declaration, kInPlace),
                StatusIs(kRefused, HasSubstr("op 6 (elementwise_sub) updates v in every step, by "
                                             "what backward computes")));
    EXPECT_THAT(status_of(declaration, kThroughAnother),
                StatusIs(kRefused, HasSubstr("op 7 (assign) updates v in every step")));
  }
}

// A target network follows in every step, which may not be what is wanted.
TEST(GradAccumulate, UpdateOfAnotherParameterInEveryStepIsAWarning) {
  constexpr char kTarget[] = R"(
    var target : fp32[2, 2] parameter persistable
    Out=[mean] = elementwise_add(X=[target], Y=[w]) {axis=-1}
    Out=[target] = scale(X=[mean]) {scale=0.5}
)";
  const auto result = ExpectRewrite(
      "grad-accumulate{k=2}",
      {absl::StrCat(kDeclarations, kTarget, kBackward, kPaired, kSgd), kStartup},
      {absl::StrCat(kNewStates, kNewTemporaries, kTarget, kBackward, kUnpaired, Accumulated(2), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    )",
                    kSgd, kReset),
       Startup()});
  EXPECT_THAT(testing::ResultLines(result.messages),
              ElementsAre(HasSubstr("warning: op 1 (scale) updates target in every step")));
}

TEST(GradAccumulate, LossScalingMustSeeWhatIsNotFinite) {
  constexpr char kVars[] = R"(
    var sense : fp32[1] persistable
  )";
  const std::string checked = absl::StrCat(
      "FoundInfinite=[found], Out=[w@GRAD] = check_finite_and_unscale(Scale=[sense], X=[w@GRAD]) "
      "role=optimize\n",
      kSgd);
  EXPECT_THAT(StatusOf(checked, kVars, "skip_nonfinite=true"),
              StatusIs(kRefused, HasSubstr("op 5 (check_finite_and_unscale): the program checks "
                                           "whether gradients are finite")));
}

}  // namespace
}  // namespace weft::testing
