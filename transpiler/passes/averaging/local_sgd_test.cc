#include "transpiler/passes/averaging/local_sgd.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Two parameters; w's optimizer keeps a velocity.
constexpr char kTwoUpdates[] = R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  )";

constexpr char kStartup[] = R"(
    var b, w : fp32[2, 2] parameter persistable
    var velocity : fp32[2, 2] persistable
    var lr : fp32[1] persistable
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[velocity] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )";

// kTwoUpdates after local-sgd, for any number of ranks.
constexpr char kAveraged[] = R"(
    var local_sgd_buffer_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
    ParamOut=[w], VelocityOut=[velocity] = momentum(Grad=[w@GRAD], LearningRate=[lr], Param=[w], Velocity=[velocity]) role=optimize {mu=0.9}
    FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
    Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
    Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
    Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
  )";

TEST(LocalSgd, ParametersAreAveragedInOneAfterTheUpdates) {
  ExpectRewrite("local-sgd", kTwoUpdates, kAveraged);
}

TEST(LocalSgd, KnownNumberOfRanksSumsAndDivides) {
  ExpectRewrite("local-sgd", kTwoUpdates, R"(
  + var local_sgd_buffer_0 : fp32[128]
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_sum(X=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = scale(X=[local_sgd_buffer_0]) role=optimize {nranks=4, scale=0.25}
  )",
                OnRanks(4));
}

TEST(LocalSgd, EveryKStepsTheAverageIsInABlock) {
  ExpectRewrite("comm-init,local-sgd{k_steps=4}", {kTwoUpdates, kStartup}, R"(
  + var local_sgd_is_due : bool[1] stop_gradient
  + var local_sgd_k, local_sgd_zero, local_sgd_remainder : int64[1] stop_gradient
  + var local_sgd_scope : step_scopes
  + var local_sgd_step : int64[1] persistable stop_gradient
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + Out=[local_sgd_step] = increment(X=[local_sgd_step]) role=optimize
  + Out=[local_sgd_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="4", value=4.0}
  + Out=[local_sgd_remainder] = elementwise_mod(X=[local_sgd_step], Y=[local_sgd_k]) role=optimize
  + Out=[local_sgd_zero] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
  + Out=[local_sgd_is_due] = equal(X=[local_sgd_remainder], Y=[local_sgd_zero]) role=optimize
  + Out=[b, w], Scope=[local_sgd_scope] = conditional_block(Cond=[local_sgd_is_due], Input=[b, w]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + block 1:
  + var local_sgd_buffer_0 : fp32[128]
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
    startup:
  + var local_sgd_step : int64[1] persistable stop_gradient
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + c_comm_init_all()
  + Out=[local_sgd_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
  )");
}

TEST(LocalSgd, FirstStepLaterThanKIsASeparateCondition) {
  ExpectRewrite("comm-init,local-sgd{k_steps=2,first_average=9}", {kTwoUpdates, kStartup}, R"(
  + var local_sgd_first : int64[1] stop_gradient
  + var local_sgd_started, local_sgd_condition, local_sgd_is_due : bool[1] stop_gradient
  + var local_sgd_k, local_sgd_zero, local_sgd_remainder : int64[1] stop_gradient
  + var local_sgd_scope : step_scopes
  + var local_sgd_step : int64[1] persistable stop_gradient
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + Out=[local_sgd_step] = increment(X=[local_sgd_step]) role=optimize
  + Out=[local_sgd_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="2", value=2.0}
  + Out=[local_sgd_remainder] = elementwise_mod(X=[local_sgd_step], Y=[local_sgd_k]) role=optimize
  + Out=[local_sgd_zero] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
  + Out=[local_sgd_is_due] = equal(X=[local_sgd_remainder], Y=[local_sgd_zero]) role=optimize
  + Out=[local_sgd_first] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="9", value=9.0}
  + Out=[local_sgd_started] = greater_equal(X=[local_sgd_step], Y=[local_sgd_first]) role=optimize
  + Out=[local_sgd_condition] = logical_and(X=[local_sgd_is_due], Y=[local_sgd_started]) role=optimize
  + Out=[b, w], Scope=[local_sgd_scope] = conditional_block(Cond=[local_sgd_condition], Input=[b, w]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + block 1:
  + var local_sgd_buffer_0 : fp32[128]
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
    startup:
  + var local_sgd_step : int64[1] persistable stop_gradient
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + c_comm_init_all()
  + Out=[local_sgd_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
  )");
}

TEST(LocalSgd, ElementTypesTravelApartOnRingsInTurn) {
  ExpectRewrite("local-sgd{nrings=2}", R"(
    var h : fp64[2, 2] parameter persistable
    var q : fp64[2, 2] need_check_feed
    var lr64 : fp64[1] persistable
  + var local_sgd_buffer_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
    Out=[z@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=6, value=1.0}
    Y@GRAD=[h@GRAD] = mul_grad(X=[q], Y=[h], Out@GRAD=[z@GRAD]) role=backward vars=[h, h@GRAD]
    ParamOut=[h] = sgd(Param=[h], Grad=[h@GRAD], LearningRate=[lr64]) role=optimize
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[h] = c_wait_compute(X=[h]) role=optimize {ring_id=1}
  + Out=[h] = c_allreduce_avg(X=[h]) role=optimize {ring_id=1}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[h] = c_wait_comm(X=[h]) role=optimize {ring_id=1}
  )");
}

TEST(LocalSgd, StateOfOptimizersIsAveragedWhereAskedFor) {
  ExpectRewrite("local-sgd{state=average}", kTwoUpdates, R"(
  + var local_sgd_buffer_0 : fp32[192]
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w, velocity] = coalesce_tensor(Input=[b, w, velocity]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, velocity, local_sgd_buffer_0] = c_wait_compute(X=[b, w, velocity, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, velocity, local_sgd_buffer_0] = c_wait_comm(X=[b, w, velocity, local_sgd_buffer_0]) role=optimize
  )");
}

TEST(LocalSgd, StateOfOptimizersIsResetWhereAskedFor) {
  ExpectRewrite("comm-init,local-sgd{state=reset}", {kTwoUpdates, kStartup}, R"(
  + var local_sgd_buffer_0 : fp32[128]
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[velocity] = fill_constant() role=optimize {shape=longs[2, 2], value=0.5}
    startup:
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + c_comm_init_all()
  )");
}

TEST(LocalSgd, MasterWeightIsAveragedAndTheParameterIsItsCast) {
  ExpectRewrite("local-sgd", R"(
    var w : fp16[2, 2] parameter persistable
    var x : fp16[2, 2] need_check_feed
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=4, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], MasterParamOut=[w32] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr], MasterParam=[w32]) role=optimize {multi_precision=true}
  + Out=[w32] = c_wait_compute(X=[w32]) role=optimize
  + Out=[w32] = c_allreduce_avg(X=[w32]) role=optimize
  + Out=[w32] = c_wait_comm(X=[w32]) role=optimize
  + Out=[w] = cast(X=[w32]) role=optimize {in_dtype=5, out_dtype=4}
  )");
}

// A target network.
TEST(LocalSgd, ParametersThatOtherOpsUpdateAreAveragedToo) {
  ExpectRewrite("local-sgd", R"(
    var target : fp32[2, 2] parameter persistable
  + var local_sgd_buffer_0 : fp32[128]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Out=[target] = assign(X=[w])
  + FusedOutput=[local_sgd_buffer_0], Output=[w, target] = coalesce_tensor(Input=[w, target]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[w, target, local_sgd_buffer_0] = c_wait_compute(X=[w, target, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[w, target, local_sgd_buffer_0] = c_wait_comm(X=[w, target, local_sgd_buffer_0]) role=optimize
  )");
}

TEST(LocalSgd, DistributedParametersStayLocal) {
  RewriteOptions options;
  options.distributed_params = {"b"};
  ExpectRewrite("local-sgd", kTwoUpdates, R"(
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + Out=[w] = c_wait_compute(X=[w]) role=optimize
  + Out=[w] = c_allreduce_avg(X=[w]) role=optimize
  + Out=[w] = c_wait_comm(X=[w]) role=optimize
  )",
                options);
}

TEST(LocalSgd, CountingStepsNeedsAStartupProgram) {
  EXPECT_THAT(RewriteStatus("local-sgd{k_steps=4}", kTwoUpdates),
              StatusIs(kRefused, HasSubstr("counting steps needs the startup program")));
}

TEST(LocalSgd, StateThatTheStartupProgramDoesNotMakeCannotBeReset) {
  EXPECT_THAT(RewriteStatus("local-sgd{state=reset}", kTwoUpdates),
              StatusIs(kRefused, HasSubstr("state reset needs the startup program")));
  EXPECT_THAT(RewriteStatus("local-sgd{state=reset}",
                            {kTwoUpdates, "var velocity : fp32[2, 2] persistable"}),
              StatusIs(kRefused, HasSubstr("state velocity: expected one startup op")));
}

// batch_norm keeps a running mean and variance.
constexpr char kStatistics[] = R"(
    var image : fp32[4, 2, 3, 3] need_check_feed
    var mean, variance : fp32[2] parameter persistable
    var bias, scale : fp32[2] persistable
    var saved_mean, saved_variance : fp32[2]
    Y=[y], MeanOut=[mean], VarianceOut=[variance], SavedMean=[saved_mean], SavedVariance=[saved_variance] = batch_norm(X=[image], Bias=[bias], Scale=[scale], Mean=[mean], Variance=[variance])
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

TEST(LocalSgd, RunningStatisticsAreAveragedWhereAskedFor) {
  ExpectRewrite("local-sgd", kStatistics, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w] = c_wait_compute(X=[w]) role=optimize
  + Out=[w] = c_allreduce_avg(X=[w]) role=optimize
  + Out=[w] = c_wait_comm(X=[w]) role=optimize
  )");
  ExpectRewrite("local-sgd{statistics=true}", kStatistics, R"(
  + var local_sgd_buffer_0 : fp32[192]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + FusedOutput=[local_sgd_buffer_0], Output=[w, mean, variance] = coalesce_tensor(Input=[w, mean, variance]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[w, mean, variance, local_sgd_buffer_0] = c_wait_compute(X=[w, mean, variance, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[w, mean, variance, local_sgd_buffer_0] = c_wait_comm(X=[w, mean, variance, local_sgd_buffer_0]) role=optimize
  )");
}

// --- Outer optimizers ----------------------------------------------------------------------------

constexpr char kStates[] = R"(
  + var b_outer_param, w_outer_param : fp32[2, 2] persistable stop_gradient
  + var b_outer_velocity, w_outer_velocity : fp32[2, 2] persistable stop_gradient
)";
constexpr char kStateStart[] = R"(
    startup:
  + var b_outer_param, w_outer_param : fp32[2, 2] persistable stop_gradient
  + var b_outer_velocity, w_outer_velocity : fp32[2, 2] persistable stop_gradient
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  + c_comm_init_all()
  + Out=[b_outer_param] = assign(X=[b])
  + Out=[b_outer_velocity] = fill_constant() {dtype=5, shape=longs[2, 2]}
  + Out=[w_outer_param] = assign(X=[w])
  + Out=[w_outer_velocity] = fill_constant() {dtype=5, shape=longs[2, 2]}
)";
constexpr char kGradients[] = R"(
  + var local_sgd_buffer_0, local_sgd_buffer_1, local_sgd_buffer_2 : fp32[128]
    ParamOut=[w], VelocityOut=[velocity] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr]) role=optimize {mu=0.9}
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + FusedOutput=[local_sgd_buffer_1], Output=[b_outer_param, w_outer_param] = coalesce_tensor(Input=[b_outer_param, w_outer_param]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[local_sgd_buffer_0] = elementwise_sub(X=[local_sgd_buffer_1], Y=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize
)";

TEST(LocalSgd, NesterovMovesTheLastParametersByTheMeanOuterGradient) {
  ExpectRewrite("comm-init,local-sgd{outer=nesterov}", {kTwoUpdates, kStartup},
                absl::StrCat(kStates, kGradients, R"(
  + FusedOutput=[local_sgd_buffer_2], Output=[b_outer_velocity, w_outer_velocity] = coalesce_tensor(Input=[b_outer_velocity, w_outer_velocity]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[local_sgd_buffer_2] = elementwise_add(X=[local_sgd_buffer_2], Y=[local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_2] = scale(X=[local_sgd_buffer_2]) role=optimize {scale=0.9}
  + Out=[local_sgd_buffer_0] = elementwise_add(X=[local_sgd_buffer_0], Y=[local_sgd_buffer_2]) role=optimize
  + Out=[local_sgd_buffer_0] = scale(X=[local_sgd_buffer_0]) role=optimize {scale=0.7}
  + Out=[local_sgd_buffer_1] = elementwise_sub(X=[local_sgd_buffer_1], Y=[local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = assign(X=[local_sgd_buffer_1]) role=optimize
)",
                             kStateStart));
}

TEST(LocalSgd, SlowMoDividesByTheLearningRate) {
  ExpectRewrite("comm-init,local-sgd{outer=\"slowmo{momentum=0.25}\"}", {kTwoUpdates, kStartup},
                absl::StrCat(kStates, kGradients, R"(
  + Out=[local_sgd_buffer_0] = elementwise_div(X=[local_sgd_buffer_0], Y=[lr]) role=optimize
  + FusedOutput=[local_sgd_buffer_2], Output=[b_outer_velocity, w_outer_velocity] = coalesce_tensor(Input=[b_outer_velocity, w_outer_velocity]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[local_sgd_buffer_2] = scale(X=[local_sgd_buffer_2]) role=optimize {scale=0.25}
  + Out=[local_sgd_buffer_2] = elementwise_add(X=[local_sgd_buffer_2], Y=[local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = scale(X=[local_sgd_buffer_2]) role=optimize {scale=1.0}
  + Out=[local_sgd_buffer_0] = elementwise_mul(X=[local_sgd_buffer_0], Y=[lr]) role=optimize
  + Out=[local_sgd_buffer_1] = elementwise_sub(X=[local_sgd_buffer_1], Y=[local_sgd_buffer_0]) role=optimize
  + Out=[local_sgd_buffer_0] = assign(X=[local_sgd_buffer_1]) role=optimize
)",
                             kStateStart));
}

TEST(LocalSgd, OuterOptimizersNeedWhatTheyBeginWith) {
  EXPECT_THAT(RewriteStatus("local-sgd{outer=sgd}", kTwoUpdates),
              StatusIs(kRefused, HasSubstr("option outer needs the startup program")));
  EXPECT_THAT(
      RewriteStatus("comm-init,local-sgd{outer=sgd}",
                    {kTwoUpdates, "Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5}"}),
      StatusIs(kRefused, HasSubstr("parameter w: expected an op of the startup program")));
}

TEST(LocalSgd, SlowMoNeedsALearningRateOfEachParameter) {
  EXPECT_THAT(RewriteStatus("comm-init,local-sgd{outer=slowmo}", {R"(
    var target : fp32[2, 2] parameter persistable
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    Out=[target] = assign(X=[w])
  )",
                                                                  kStartup}),
              StatusIs(kRefused, HasSubstr("parameter target: outer optimizer slowmo divides by")));
}

TEST(LocalSgd, FragmentsDivideThePeriodAndTheParameters) {
  EXPECT_THAT(RewriteStatus("comm-init,local-sgd{k_steps=4,fragments=3}", {kTwoUpdates, kStartup}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a divisor of k_steps 4")));
  EXPECT_THAT(RewriteStatus("comm-init,local-sgd{k_steps=4,begin_step=3,fragments=2}",
                            {kTwoUpdates, kStartup}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("neither begin_step nor")));
  EXPECT_THAT(RewriteStatus("comm-init,local-sgd{k_steps=3,fragments=3}", {kTwoUpdates, kStartup}),
              StatusIs(kRefused, HasSubstr("expected at most 2, one for each parameter, found 3")));
  EXPECT_THAT(RewriteStatus("comm-init,local-sgd{k_steps=2,fragments=2,state=reset}",
                            {kTwoUpdates, kStartup}),
              StatusIs(kRefused, HasSubstr("found option state=reset")));
}

// --- Delays and mixtures ------------------------------------------------------------------------

TEST(LocalSgd, DelayIsShorterThanATurn) {
  const auto refused = [](const char* options) {
    return RewriteStatus(absl::StrCat("comm-init,local-sgd{", options, "}"),
                         {kTwoUpdates, kStartup});
  };
  const auto is_invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refused("k_steps=4,outer=sgd,fragments=2,delay=2"),
              is_invalid("delay: expected less than the 2 steps between two turns, found 2"));
  EXPECT_THAT(refused("k_steps=4,first_average=2,outer=sgd,delay=1"),
              is_invalid("delay: expected neither begin_step nor first_average"));
  EXPECT_THAT(refused("k_steps=4,delay=1"), is_invalid("delay: expected an outer optimizer"));
  EXPECT_THAT(refused("k_steps=4,mix=0.5"), is_invalid("mix: expected an outer optimizer"));
  EXPECT_THAT(refused("k_steps=4,outer=sgd,mix=1.5"),
              is_invalid("mix: expected at least 0 and at most 1, found 1.5"));
  EXPECT_THAT(refused("k_steps=4,outer=sgd,mix=all"), is_invalid("a number from 0 to 1"));
}

// --- Groups of ranks ----------------------------------------------------------------------------

TEST(LocalSgd, GroupsHaveRingsOfTheirOwn) {
  ExpectRewrite("comm-init{group_size=2},local-sgd{k_steps=2,group_size=2,rounds=3}", R"(
    var b : fp32[2, 2] parameter persistable
    var b@GRAD : fp32[2, 2]
  + var local_sgd_condition : bool[1] stop_gradient
  + var local_sgd_differs : bool[1] stop_gradient
  + var local_sgd_is_due : bool[1] stop_gradient
  + var local_sgd_is_due_of_all : bool[1] stop_gradient
  + var local_sgd_k : int64[1] stop_gradient
  + var local_sgd_k_of_all : int64[1] stop_gradient
  + var local_sgd_other : int64[1] stop_gradient
  + var local_sgd_remainder : int64[1] stop_gradient
  + var local_sgd_remainder_of_all : int64[1] stop_gradient
  + var local_sgd_scope : step_scopes
  + var local_sgd_scope_groups : step_scopes
  + var local_sgd_step : int64[1] persistable stop_gradient
  + var local_sgd_zero : int64[1] stop_gradient
  + var local_sgd_zero_of_all : int64[1] stop_gradient
    var lr : fp32[1] persistable
    var velocity : fp32[2, 2] persistable
    var w : fp32[2, 2] parameter persistable
    var w@GRAD : fp32[2, 2]
    var x : fp32[2, 2] need_check_feed
    var y@GRAD : fp32[2, 2]
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
    ParamOut=[w], VelocityOut=[velocity] = momentum(Grad=[w@GRAD], LearningRate=[lr], Param=[w], Velocity=[velocity]) role=optimize {mu=0.9}
  + Out=[local_sgd_step] = increment(X=[local_sgd_step]) role=optimize
  + Out=[local_sgd_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="2", value=2.0}
  + Out=[local_sgd_remainder] = elementwise_mod(X=[local_sgd_step], Y=[local_sgd_k]) role=optimize
  + Out=[local_sgd_zero] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
  + Out=[local_sgd_is_due] = equal(X=[local_sgd_remainder], Y=[local_sgd_zero]) role=optimize
  + Out=[local_sgd_k_of_all] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="6", value=6.0}
  + Out=[local_sgd_remainder_of_all] = elementwise_mod(X=[local_sgd_step], Y=[local_sgd_k_of_all]) role=optimize
  + Out=[local_sgd_other] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
  + Out=[local_sgd_differs] = not_equal(X=[local_sgd_remainder_of_all], Y=[local_sgd_other]) role=optimize
  + Out=[local_sgd_condition] = logical_and(X=[local_sgd_is_due], Y=[local_sgd_differs]) role=optimize
  + Out=[local_sgd_zero_of_all] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
  + Out=[local_sgd_is_due_of_all] = equal(X=[local_sgd_remainder_of_all], Y=[local_sgd_zero_of_all]) role=optimize
  + Out=[b, w], Scope=[local_sgd_scope_groups] = conditional_block(Cond=[local_sgd_condition], Input=[b, w]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  + Out=[b, w], Scope=[local_sgd_scope] = conditional_block(Cond=[local_sgd_is_due_of_all], Input=[b, w]) role=optimize {is_scalar_condition=true, sub_block=block(2)}
  + block 1 parent=0:
  + var local_sgd_buffer_0 : fp32[128]
  + FusedOutput=[local_sgd_buffer_0], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize {ring_id=1}
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize {group_ranks=ints[0, 1], ring_id=1}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize {ring_id=1}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_compute(X=[b, w, local_sgd_buffer_0]) role=optimize {ring_id=2}
  + Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize {group_ranks=ints[2, 3], ring_id=2}
  + Out=[b, w, local_sgd_buffer_0] = c_wait_comm(X=[b, w, local_sgd_buffer_0]) role=optimize {ring_id=2}
  + block 2 parent=0:
  + var local_sgd_buffer_1 : fp32[128]
  + FusedOutput=[local_sgd_buffer_1], Output=[b, w] = coalesce_tensor(Input=[b, w]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[b, w, local_sgd_buffer_1] = c_wait_compute(X=[b, w, local_sgd_buffer_1]) role=optimize
  + Out=[local_sgd_buffer_1] = c_allreduce_sum(X=[local_sgd_buffer_1]) role=optimize
  + Out=[b, w, local_sgd_buffer_1] = c_wait_comm(X=[b, w, local_sgd_buffer_1]) role=optimize
  + Out=[local_sgd_buffer_1] = scale(X=[local_sgd_buffer_1]) role=optimize {nranks=4, scale=0.25}
startup:
    var b : fp32[2, 2] parameter persistable
  + var local_sgd_step : int64[1] persistable stop_gradient
    var lr : fp32[1] persistable
    var velocity : fp32[2, 2] persistable
    var w : fp32[2, 2] parameter persistable
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[velocity] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], value=0.5}
  + c_comm_init_all() {nranks=4}
  + c_comm_init_all() {group_ranks=ints[0, 1], nranks=4, ring_id=1}
  + c_comm_init_all() {group_ranks=ints[2, 3], nranks=4, ring_id=2}
  + Out=[local_sgd_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
)",
                OnRanks(4));
}

TEST(LocalSgd, GroupsAreOfEquallyManyRanks) {
  const auto refused = [](const char* options, int nranks) {
    return RewriteStatus(absl::StrCat("comm-init,local-sgd{", options, "}"),
                         {kTwoUpdates, kStartup}, OnRanks(nranks));
  };
  const auto is_invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refused("group_size=2,rounds=2", 5), is_invalid("a multiple of 2 above it, found 5"));
  EXPECT_THAT(refused("group_size=4,rounds=2", 4), is_invalid("a multiple of 4 above it, found 4"));
  EXPECT_THAT(refused("group_size=2", 4), is_invalid("group_size: expected rounds, more than 1"));
  EXPECT_THAT(refused("rounds=2", 4), is_invalid("rounds with group_size only"));
  EXPECT_THAT(refused("group_size=1,rounds=2", 4), is_invalid("at least 2, found 1"));
  for (const char* option : {"fragments", "delay", "begin_step", "first_average"}) {
    const std::string options = absl::StrCat("group_size=2,rounds=2,k_steps=4,", option, "=2");
    EXPECT_THAT(refused(options.c_str(), 4), is_invalid(absl::StrCat("leave out option ", option,
                                                                     ", or option group_size and "
                                                                     "option rounds")
                                                            .c_str()));
  }
  EXPECT_THAT(refused("group_size=2,rounds=2,state=reset", 4),
              StatusIs(kRefused, HasSubstr("found option state=reset")));
}

// --- What is refused, and remarks ----------------------------------------------------------------

TEST(LocalSgd, NothingToAverageIsRefused) {
  EXPECT_THAT(RewriteStatus("local-sgd", "Out=[y] = relu(X=[x])"),
              StatusIs(kRefused, HasSubstr("no op updates a replicated parameter")));
}

TEST(LocalSgd, AveragedParametersAndReducedGradientsExcludeEachOther) {
  for (const char* pass : {"local-sgd", "grad-all-reduce"}) {
    EXPECT_THAT(RewriteStatus(pass, kAveraged),
                StatusIs(kRefused, HasSubstr("parameters-averaged already holds: op 7 "
                                             "(c_allreduce_avg) takes local_sgd_buffer_0")));
  }
  EXPECT_THAT(RewriteStatus("grad-all-reduce,local-sgd", kAveraged),
              StatusIs(kRefused, HasSubstr("parameters-averaged already holds")));
}

TEST(LocalSgd, RemarksSayWhatGroupsSend) {
  const Rewritten rewritten =
      Rewrite("comm-init{group_size=2},local-sgd{k_steps=2,group_size=2,rounds=4}",
              {kTwoUpdates, kStartup}, OnRanks(4));
  EXPECT_THAT(RemarkTexts(rewritten.result),
              Contains(AllOf(HasSubstr("bytes_a_round=32 bytes_a_step=16 "),
                             HasSubstr(" bytes_a_step_over_all_ranks=4 "
                                       "bytes_a_step_of_grad_allreduce=32"))));
}

TEST(LocalSgd, RemarksSayWhatIsAveragedAndWhen) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("local-sgd", kTwoUpdates, kAveraged)),
      ElementsAre(
          "b averaged: ranks train separately in between when=every step ring=0",
          "w averaged: ranks train separately in between when=every step ring=0",
          "communication bytes that a rank gives to collectives: mode grad_allreduce gives all "
          "gradients to them in every step when=every 1 step bytes_a_round=32 bytes_a_step=32 "
          "bytes_a_step_of_grad_allreduce=32",
          "b@GRAD not reduced: ranks update by local gradients, and average parameters parameter=b",
          "w@GRAD not reduced: ranks update by local gradients, and average parameters "
          "parameter=w"));
}

}  // namespace
}  // namespace weft::testing
