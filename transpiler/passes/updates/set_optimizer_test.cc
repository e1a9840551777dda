#include "transpiler/passes/updates/set_optimizer.h"

#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kGradient[] =
    "Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD] {scale=1.0}\n";
constexpr char kWeight[] = R"(
    var w : fp32[2, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  )";

// A program whose weight is updated by momentum.
ProgramTexts WithMomentum() {
  return {absl::StrCat(kGradient, R"(
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {mu=0.9}
  )"),
          R"(
    var w : fp32[2, 2] parameter persistable
    var v : fp32[2, 2] persistable
    var lr : fp32[1] persistable
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )"};
}

RewriteOptions Erasing(std::set<std::string> variables) {
  RewriteOptions options;
  options.erased_vars = std::move(variables);
  return options;
}

// --- What replaces an update ---------------------------------------------------------------------

TEST(SetOptimizer, UpdateStateAndInitializationAreReplaced) {
  ExpectRewrite("set-optimizer{type=adam,lr=0.01,beta_2=0.99}", WithMomentum(), R"(
  - var lr, v
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_moment1_0, w_moment2_0 : fp32[2, 2] persistable stop_gradient
  + var w_beta1_pow_acc_0, w_beta2_pow_acc_0 : fp32[1] persistable stop_gradient
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {mu=0.9}
  + Beta1PowOut=[w_beta1_pow_acc_0], Beta2PowOut=[w_beta2_pow_acc_0], Moment1Out=[w_moment1_0], Moment2Out=[w_moment2_0], ParamOut=[w] = adam(Beta1Pow=[w_beta1_pow_acc_0], Beta2Pow=[w_beta2_pow_acc_0], Grad=[w@GRAD], LearningRate=[learning_rate_0], Moment1=[w_moment1_0], Moment2=[w_moment2_0], Param=[w]) role=optimize vars=[w, w@GRAD] {beta2=0.99}
    startup:
  - var v, lr
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_moment1_0, w_moment2_0 : fp32[2, 2] persistable stop_gradient
  + var w_beta1_pow_acc_0, w_beta2_pow_acc_0 : fp32[1] persistable stop_gradient
  - Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  - Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.01}
  + Out=[w_moment1_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w_moment2_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w_beta1_pow_acc_0] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
  + Out=[w_beta2_pow_acc_0] = fill_constant() {shape=longs[1], dtype=5, value=0.99}
  )");
}

TEST(SetOptimizer, DecayIsAddedAndTheVelocityDamped) {
  ExpectRewrite("set-optimizer{lr=0.5,momentum=0.9,dampening=0.25,weight_decay=0.125}",
                WithMomentum(), R"(
  - var lr, v
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_velocity_0 : fp32[2, 2] persistable stop_gradient
  + var w_decay_0, w_decayed_gradient_0, w_damped_gradient_0 : fp32[2, 2]
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {mu=0.9}
  + Out=[w_decay_0] = scale(X=[w]) role=optimize vars=[w, w@GRAD] {scale=0.125}
  + Out=[w_decayed_gradient_0] = sum(X=[w@GRAD, w_decay_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_damped_gradient_0] = scale(X=[w_decayed_gradient_0]) role=optimize vars=[w, w@GRAD] {scale=0.75}
  + ParamOut=[w], VelocityOut=[w_velocity_0] = momentum(Grad=[w_damped_gradient_0], LearningRate=[learning_rate_0], Param=[w], Velocity=[w_velocity_0]) role=optimize vars=[w, w@GRAD] {mu=0.9}
    startup:
  - var v, lr
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_velocity_0 : fp32[2, 2] persistable stop_gradient
  - Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  - Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.5}
  + Out=[w_velocity_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )");
}

TEST(SetOptimizer, SchedulesComeFromACounterOfUpdates) {
  ExpectRewrite("set-optimizer{type=adagrad,lr=exp(0.5:10:0.75:staircase)}", WithMomentum(), R"(
  - var lr, v
  + var step_counter_0 : int64[] persistable stop_gradient
  + var w_history_0 : fp32[2, 2] persistable stop_gradient
  + var w_square_0, w_root_0, w_direction_0 : fp32[2, 2]
  + var step_0, learning_rate_decay_steps_0, learning_rate_exponent_0, learning_rate_decay_rate_0 : fp32[]
  + var learning_rate_factor_0, learning_rate_0 : fp32[]
  - ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {mu=0.9}
  + Out=[step_0] = cast(X=[step_counter_0]) role=lr_sched {in_dtype=3, out_dtype=5}
  + Out=[learning_rate_decay_steps_0] = fill_constant() role=lr_sched {shape=longs[], dtype=5, value=10.0}
  + Out=[learning_rate_exponent_0] = elementwise_div(X=[step_0], Y=[learning_rate_decay_steps_0]) role=lr_sched
  + Out=[learning_rate_exponent_0] = floor(X=[learning_rate_exponent_0]) role=lr_sched
  + Out=[learning_rate_decay_rate_0] = fill_constant() role=lr_sched {shape=longs[], dtype=5, value=0.75}
  + Out=[learning_rate_factor_0] = elementwise_pow(X=[learning_rate_decay_rate_0], Y=[learning_rate_exponent_0]) role=lr_sched
  + Out=[learning_rate_0] = scale(X=[learning_rate_factor_0]) role=lr_sched {scale=0.5}
  + Out=[w_square_0] = square(X=[w@GRAD]) role=optimize vars=[w, w@GRAD]
  + Out=[w_history_0] = elementwise_add(X=[w_history_0], Y=[w_square_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_root_0] = scale(X=[w_history_0]) role=optimize vars=[w, w@GRAD] {scale=1.0, bias=1e-08}
  + Out=[w_root_0] = sqrt(X=[w_root_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_direction_0] = elementwise_div(X=[w@GRAD], Y=[w_root_0]) role=optimize vars=[w, w@GRAD]
  + ParamOut=[w] = sgd(Grad=[w_direction_0], LearningRate=[learning_rate_0], Param=[w]) role=optimize vars=[w, w@GRAD]
  + Out=[step_counter_0] = increment(X=[step_counter_0]) role=lr_sched {step=1.0}
    startup:
  - var v, lr
  + var step_counter_0 : int64[] persistable stop_gradient
  + var w_history_0 : fp32[2, 2] persistable stop_gradient
  - Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  - Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + Out=[step_counter_0] = fill_constant() {shape=longs[], dtype=3, value=0.0}
  + Out=[w_history_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )");
}

TEST(SetOptimizer, ClippedGradientIsRead) {
  const std::string clip = absl::StrCat(
      kGradient, "Out=[c] = clip(X=[w@GRAD]) role=optimize vars=[w, c] {min=-1.0, max=1.0}\n");
  const std::string startup = R"(
    var w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )";
  const std::string after = absl::StrCat(
      "var learning_rate_0 : fp32[] persistable stop_gradient\n", clip,
      "ParamOut=[w] = sgd(Param=[w], Grad=[c], LearningRate=[learning_rate_0]) role=optimize "
      "vars=[w, c]\n");
  const std::string after_startup =
      absl::StrCat("var learning_rate_0 : fp32[] persistable stop_gradient\n", kWeight,
                   "Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.1}\n");
  ExpectRewrite("set-optimizer",
                {absl::StrCat(clip,
                              "ParamOut=[w] = sgd(Param=[w], Grad=[c], LearningRate=[lr]) "
                              "role=optimize vars=[w, c]\n"),
                 startup},
                {after, after_startup}, Erasing({"lr"}));
  // Also where nothing updates by it yet.
  ExpectRewrite("set-optimizer", {clip, kWeight}, {after, after_startup});
}

TEST(SetOptimizer, SkippedUpdateIsStillSkipped) {
  const ProgramTexts programs = {absl::StrCat("var inf : bool[1] need_check_feed\n", kGradient, R"(
    Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w], SkipUpdate=[inf]) role=optimize vars=[w, w@GRAD]
  )"),
                                 R"(
    var w : fp32[2, 2] parameter persistable
    var lr, b1, b2 : fp32[1] persistable
    var m, v : fp32[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
    Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
    Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=0.999}
    Out=[m] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )"};
  ExpectRewrite("set-optimizer{type=adam,beta_1=exp(0.9:1:0.5)}", programs, R"(
  - var b1, b2, lr, m, v
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var step_counter_0 : int64[] persistable stop_gradient
  + var w_moment1_0, w_moment2_0 : fp32[2, 2] persistable stop_gradient
  + var step_0, beta_1_decay_steps_0, beta_1_exponent_0, beta_1_decay_rate_0, beta_1_factor_0, beta_1_0 : fp32[]
  + var beta_2_0 : fp32[]
  + var beta_1_pow_0, beta_2_pow_0 : fp32[] persistable stop_gradient
  + var next_step_0 : fp32[]
  - Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w], SkipUpdate=[inf]) role=optimize vars=[w, w@GRAD]
  + Out=[step_0] = cast(X=[step_counter_0]) role=lr_sched {in_dtype=3, out_dtype=5}
  + Out=[beta_1_decay_steps_0] = fill_constant() role=lr_sched {shape=longs[], dtype=5, value=1.0}
  + Out=[beta_1_exponent_0] = elementwise_div(X=[step_0], Y=[beta_1_decay_steps_0]) role=lr_sched
  + Out=[beta_1_decay_rate_0] = fill_constant() role=lr_sched {shape=longs[], dtype=5, value=0.5}
  + Out=[beta_1_factor_0] = elementwise_pow(X=[beta_1_decay_rate_0], Y=[beta_1_exponent_0]) role=lr_sched
  + Out=[beta_1_0] = scale(X=[beta_1_factor_0]) role=lr_sched {scale=0.9}
  + Out=[next_step_0] = scale(X=[step_0]) role=lr_sched {scale=1.0, bias=1.0}
  + Out=[beta_1_pow_0] = elementwise_pow(X=[beta_1_0], Y=[next_step_0]) role=lr_sched
  + Out=[beta_2_0] = fill_constant() role=lr_sched {shape=longs[], dtype=5, value=0.999}
  + Out=[beta_2_pow_0] = elementwise_pow(X=[beta_2_0], Y=[next_step_0]) role=lr_sched
  + Beta1PowOut=[beta_1_pow_0], Beta2PowOut=[beta_2_pow_0], Moment1Out=[w_moment1_0], Moment2Out=[w_moment2_0], ParamOut=[w] = adam(Beta1Pow=[beta_1_pow_0], Beta1Tensor=[beta_1_0], Beta2Pow=[beta_2_pow_0], Grad=[w@GRAD], LearningRate=[learning_rate_0], Moment1=[w_moment1_0], Moment2=[w_moment2_0], Param=[w], SkipUpdate=[inf]) role=optimize vars=[w, w@GRAD] {use_global_beta_pow=true}
  + Out=[step_counter_0] = increment(X=[step_counter_0]) role=lr_sched {step=1.0}
    startup:
  - var lr, b1, b2, m, v
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var step_counter_0 : int64[] persistable stop_gradient
  + var beta_1_pow_0, beta_2_pow_0 : fp32[] persistable stop_gradient
  + var w_moment1_0, w_moment2_0 : fp32[2, 2] persistable stop_gradient
  - Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  - Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
  - Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=0.999}
  - Out=[m] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  - Out=[v] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.1}
  + Out=[step_counter_0] = fill_constant() {shape=longs[], dtype=3, value=0.0}
  + Out=[beta_1_pow_0] = fill_constant() {shape=longs[], dtype=5, value=0.9}
  + Out=[beta_2_pow_0] = fill_constant() {shape=longs[], dtype=5, value=0.999}
  + Out=[w_moment1_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w_moment2_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )");
  EXPECT_THAT(RewriteStatus("set-optimizer", programs),
              StatusIs(kRefused, HasSubstr("op 1 (adam) input SkipUpdate: inf says whether w is "
                                           "updated; expected type adam or adamw")));
}

TEST(SetOptimizer, UpdateInABranchStaysThere) {
  ExpectRewrite(
      "set-optimizer{momentum=0.5}",
      {absl::StrCat("var c : bool[1] need_check_feed\nvar s : step_scopes\n", kGradient, R"(
    Out=[w], Scope=[s] = conditional_block(Cond=[c], Input=[w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  )"),
       R"(
    var w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )"},
      R"(
  - var lr
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_velocity_0 : fp32[2, 2] persistable stop_gradient
  - Out=[w], Scope=[s] = conditional_block(Cond=[c], Input=[w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + Out=[w, w_velocity_0], Scope=[s] = conditional_block(Cond=[c], Input=[w, w@GRAD, learning_rate_0, w_velocity_0]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    block 1:
  - ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  + ParamOut=[w], VelocityOut=[w_velocity_0] = momentum(Param=[w], Grad=[w@GRAD], LearningRate=[learning_rate_0], Velocity=[w_velocity_0]) role=optimize vars=[w, w@GRAD] {mu=0.5}
    startup:
  - var lr
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_velocity_0 : fp32[2, 2] persistable stop_gradient
  - Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.1}
  + Out=[w_velocity_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )");
}

TEST(SetOptimizer, RowsBecomeATensorWhereOpsOnTensorsReadThem) {
  const std::string gradient =
      "var w@GRAD : selected_rows<fp32[2, 2]>\n"
      "W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[i], Out@GRAD=[y@GRAD], W=[w]) role=backward "
      "vars=[w, w@GRAD] {is_sparse=true}\n";
  const std::string declarations =
      "var i : int64[3] need_check_feed\nvar y@GRAD : fp32[3, 2] "
      "need_check_feed\n";
  const std::string startup = absl::StrCat(
      "var learning_rate_0 : fp32[] persistable stop_gradient\n"
      "var w_history_0 : fp32[2, 2] persistable stop_gradient\n",
      kWeight, R"(
    Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.1}
    Out=[w_history_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )");
  ExpectRewrite("set-optimizer{type=adagrad}", {absl::StrCat(declarations, gradient), kWeight}, R"(
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_history_0 : fp32[2, 2] persistable stop_gradient
  + var w_zeros_0, w_dense_gradient_0, w_square_0, w_root_0, w_direction_0 : fp32[2, 2]
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[i], Out@GRAD=[y@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
  + Out=[w_zeros_0] = fill_constant() role=optimize vars=[w, w@GRAD] {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w_dense_gradient_0] = sum(X=[w@GRAD, w_zeros_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_square_0] = square(X=[w_dense_gradient_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_history_0] = elementwise_add(X=[w_history_0], Y=[w_square_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_root_0] = scale(X=[w_history_0]) role=optimize vars=[w, w@GRAD] {scale=1.0, bias=1e-08}
  + Out=[w_root_0] = sqrt(X=[w_root_0]) role=optimize vars=[w, w@GRAD]
  + Out=[w_direction_0] = elementwise_div(X=[w_dense_gradient_0], Y=[w_root_0]) role=optimize vars=[w, w@GRAD]
  + ParamOut=[w] = sgd(Grad=[w_direction_0], LearningRate=[learning_rate_0], Param=[w]) role=optimize vars=[w, w@GRAD]
    startup:
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_history_0 : fp32[2, 2] persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.1}
  + Out=[w_history_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  )");
}

// --- Runs after each other -----------------------------------------------------------------------

// The program of kGradient with plain SGD.
ProgramTexts WithSgd(const std::string& learning_rate) {
  const std::string var =
      absl::StrCat("var ", learning_rate, " : fp32[] persistable stop_gradient\n");
  return {
      absl::StrCat(var, kGradient, "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[",
                   learning_rate, "]) role=optimize vars=[w, w@GRAD]\n"),
      absl::StrCat(var, kWeight, "Out=[", learning_rate,
                   "] = fill_constant() {shape=longs[], dtype=5, value=0.1}\n")};
}

TEST(SetOptimizer, RunWithOtherSettingsReplacesAllOfTheFirst) {
  RewriteOptions options = Erasing({"v", "lr"});
  options.second_run = RewriteOptions::SecondRun::kIsNotChecked;
  ExpectRewrite("set-optimizer{type=adagrad,lr=exp(0.5:10:0.75),weight_decay=0.1},set-optimizer",
                WithMomentum(), WithSgd("learning_rate_1"), options);
}

TEST(SetOptimizer, RunWithTheSameSettingsChangesNothing) {
  const TranspileResult result =
      ExpectRewrite("set-optimizer{lr=0.10},set-optimizer{type=sgd,lr=1e-1}", {kGradient, kWeight},
                    WithSgd("learning_rate_0"));
  ASSERT_EQ(result.passes.size(), 2);
  EXPECT_TRUE(result.passes[0].changed);
  EXPECT_FALSE(result.passes[1].changed);
}

TEST(SetOptimizer, RemarksNameParametersAndWhatWasReplaced) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("set-optimizer", {kGradient, kWeight}, WithSgd("learning_rate_0"))),
      ElementsAre("w added: set to {type=sgd,lr=0.1,weight_decay=0,momentum=0,dampening=0} "
                  "gradient=w@GRAD"));
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("set-optimizer", WithMomentum(), WithSgd("learning_rate_0"),
                                Erasing({"v", "lr"}))),
      ElementsAre("w replaced: set to {type=sgd,lr=0.1,weight_decay=0,momentum=0,dampening=0} "
                  "gradient=w@GRAD in place of=op 1 (momentum)"));
}

// --- What is refused -----------------------------------------------------------------------------

TEST(SetOptimizer, ProgramsThatItCannotRewriteAreRefused) {
  const struct {
    std::string main;
    const char* message;
  } cases[] = {
      {"Out=[y] = scale(X=[x])\n", "nothing to update: the program has no update ops"},
      {"var w : fp16[2, 2] parameter persistable\n"
       "Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]\n",
       "parameter w, gradient w@GRAD: expected fp16[2, 2], found fp32[2, 2]"},
      {"var w : fp16[2, 2] parameter persistable\n"
       "Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]\n"
       "ParamOut=[w], MasterParamOut=[m] = sgd(Param=[w], Grad=[w@GRAD], MasterParam=[m], "
       "LearningRate=[lr]) role=optimize {multi_precision=true}\n",
       "op 1 (sgd): parameter w: expected an fp32 tensor of known dimensions, or an fp16 one, "
       "found "
       "fp16[2, 2] with a master weight"},
      {"EncodeGrad=[e], GatherBuff=[b], Grad_out=[w@GRAD], U_out=[u], V_out=[v], k=[k] = "
       "dgc(Grad=[w@GRAD], U=[u], V=[v], current_step=[s], nranks=[n]) role=backward "
       "vars=[w, w@GRAD] {rampup_step=1.0, sparsity=floats[0.9]}\n",
       "compresses gradient w@GRAD"},
      {"var w : fp64[2, 2] parameter persistable\n"
       "Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]\n",
       "parameter w: expected an fp32 tensor of known dimensions, or an fp16 one, found fp64[2, "
       "2]"},
      {"var w@GRAD : fp32[2]\n"
       "Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD]\n",
       "parameter w, gradient w@GRAD: expected fp32[2, 2], found fp32[2]"},
      {absl::StrCat(kGradient, "Out=[w] = elementwise_sub(X=[w], Y=[w@GRAD]) role=optimize\n"),
       "parameter w is updated by ops that are no optimizers"},
      {absl::StrCat(kGradient,
                    "Out=[other] = scale(X=[x]) role=backward vars=[w, other] {scale=2.0}\n"),
       "parameter w: expected one gradient, found w@GRAD and other"},
      {"var w@MERGED : fp32[2, 2] persistable\n"
       "Out=[w@MERGED] = elementwise_add(X=[w@MERGED], Y=[x]) role=backward vars=[w, w@MERGED]\n",
       "gradient w@MERGED is accumulated over several steps"},
      {absl::StrCat("var c : bool[1] need_check_feed\nvar s : step_scopes\n", kGradient, R"(
    Out=[w], StepScopes=[s] = while(Condition=[c], X=[w, w@GRAD, lr]) {sub_block=block(1)}
    block 1:
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )"),
       "block 1, op 0 (sgd): expected updates in the root block, or in one that a branch"},
  };
  RewriteOptions options;
  options.verification = Verification::kNever;
  for (const auto& [main, message] : cases) {
    EXPECT_THAT(RewriteStatus("set-optimizer", {main, kWeight}, options),
                StatusIs(kRefused, HasSubstr(message)));
  }
}

TEST(SetOptimizer, StartupProgramIsNeeded) {
  EXPECT_THAT(RewriteStatus("set-optimizer", kGradient),
              StatusIs(kRefused, HasSubstr("needs the startup program")));
}

TEST(SetOptimizer, AdamWDecaysItsParametersItself) {
  const std::string text =
      RemarkTexts(ExpectRewrite("set-optimizer{type=adamw,lr=0.01}", {kGradient, kWeight}, R"(
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_moment1_0, w_moment2_0 : fp32[2, 2] persistable stop_gradient
  + var w_beta1_pow_acc_0, w_beta2_pow_acc_0 : fp32[1] persistable stop_gradient
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD] {scale=1.0}
  + Beta1PowOut=[w_beta1_pow_acc_0], Beta2PowOut=[w_beta2_pow_acc_0], Moment1Out=[w_moment1_0], Moment2Out=[w_moment2_0], ParamOut=[w] = adamw(Beta1Pow=[w_beta1_pow_acc_0], Beta2Pow=[w_beta2_pow_acc_0], Grad=[w@GRAD], LearningRate=[learning_rate_0], Moment1=[w_moment1_0], Moment2=[w_moment2_0], Param=[w]) role=optimize vars=[w, w@GRAD] {coeff=0.01, with_decay=true}
    startup:
  + var learning_rate_0 : fp32[] persistable stop_gradient
  + var w_moment1_0, w_moment2_0 : fp32[2, 2] persistable stop_gradient
  + var w_beta1_pow_acc_0, w_beta2_pow_acc_0 : fp32[1] persistable stop_gradient
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
  + Out=[learning_rate_0] = fill_constant() {shape=longs[], dtype=5, value=0.01}
  + Out=[w_moment1_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w_moment2_0] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0}
  + Out=[w_beta1_pow_acc_0] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
  + Out=[w_beta2_pow_acc_0] = fill_constant() {shape=longs[1], dtype=5, value=0.999}
  )"))[0];
  EXPECT_THAT(text, HasSubstr("{type=adamw,lr=0.01,weight_decay=0.01,"));
}

TEST(SetOptimizer, ContradictoryOptionsAreRefused) {
  EXPECT_THAT(
      RewriteStatus("set-optimizer{type=adamw,weight_decay=exp(0.1:2:0.5)}", {kGradient, kWeight}),
      StatusIs(kInvalid, HasSubstr("option weight_decay: type adamw takes a constant")));
  EXPECT_THAT(RewriteStatus("set-optimizer{type=adam,rho=0.9}", {kGradient, kWeight}),
              StatusIs(kInvalid, HasSubstr("option rho: type adam does not read it")));
}

TEST(SetOptimizer, ReducedGradientsAreRefused) {
  const std::string reduced =
      absl::StrCat(kGradient,
                   "Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0,"
                   " use_calc_stream=true}\n");
  EXPECT_THAT(RewriteStatus("set-optimizer", {reduced, kWeight}),
              StatusIs(kRefused, HasSubstr("gradients-reduced")));
  EXPECT_THAT(RewriteStatus("comm-init,broadcast-params,local-sgd,set-optimizer", WithMomentum()),
              StatusIs(kRefused, HasSubstr("parameters-averaged")));
}

}  // namespace
}  // namespace weft::testing
