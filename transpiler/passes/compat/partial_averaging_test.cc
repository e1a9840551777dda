#include "transpiler/passes/compat/partial_averaging.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Two parameters of 4 elements. The gradient of w is complete first, b is updated first.
constexpr char kTwoUpdates[] = R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(X=[x], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

constexpr char kStartup[] = R"(
    var b, w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[b] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
  )";

// Two partitions, for 4 ranks.
constexpr char kTwoPartitions[] = R"(
    var partial_averaging_step : int64[1] persistable stop_gradient
    var partial_averaging_k, partial_averaging_remainder : int64[1] stop_gradient
    var partial_averaging_phase_1 : int64[1] stop_gradient
    var partial_averaging_is_due_1 : bool[1] stop_gradient
    var partial_averaging_scope_1 : step_scopes
    var partial_averaging_zero_2 : int64[1] stop_gradient
    var partial_averaging_is_due_2 : bool[1] stop_gradient
    var partial_averaging_scope_2 : step_scopes
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[b]) role=backward vars=[b, b@GRAD]
    ParamOut=[b] = sgd(Grad=[b@GRAD], LearningRate=[lr], Param=[b]) role=optimize
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    Out=[partial_averaging_step] = increment(X=[partial_averaging_step]) role=optimize
    Out=[partial_averaging_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="2", value=2.0}
    Out=[partial_averaging_remainder] = elementwise_mod(X=[partial_averaging_step], Y=[partial_averaging_k]) role=optimize
    Out=[partial_averaging_phase_1] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="1", value=1.0}
    Out=[partial_averaging_is_due_1] = equal(X=[partial_averaging_remainder], Y=[partial_averaging_phase_1]) role=optimize
    Out=[w], Scope=[partial_averaging_scope_1] = conditional_block(Cond=[partial_averaging_is_due_1], Input=[w]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
    Out=[partial_averaging_zero_2] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
    Out=[partial_averaging_is_due_2] = equal(X=[partial_averaging_remainder], Y=[partial_averaging_zero_2]) role=optimize
    Out=[b], Scope=[partial_averaging_scope_2] = conditional_block(Cond=[partial_averaging_is_due_2], Input=[b]) role=optimize {is_scalar_condition=true, sub_block=block(2)}
    block 1:
    Out=[w] = c_wait_compute(X=[w]) role=optimize
    Out=[w] = c_allreduce_sum(X=[w]) role=optimize
    Out=[w] = c_wait_comm(X=[w]) role=optimize
    Out=[w] = scale(X=[w]) role=optimize {nranks=4, scale=0.25}
    block 2:
    Out=[b] = c_wait_compute(X=[b]) role=optimize
    Out=[b] = c_allreduce_sum(X=[b]) role=optimize
    Out=[b] = c_wait_comm(X=[b]) role=optimize
    Out=[b] = scale(X=[b]) role=optimize {nranks=4, scale=0.25}
  )";

TEST(PartialAveraging, PartitionsTakeTurnsInTheOrderOfTheirGradients) {
  const auto result = ExpectRewrite("comm-init,partial-averaging{threshold=3}",
                                    {kTwoUpdates, kStartup}, {kTwoPartitions, R"(
    var partial_averaging_step : int64[1] persistable stop_gradient
    Out=[b] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], value=0.5}
    c_comm_init_all() {nranks=4}
    Out=[partial_averaging_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
  )"},
                                    OnRanks(4));
  EXPECT_THAT(RemarkTexts(result),
              IsSupersetOf({"w averaged: ranks train separately in between when=every 2 steps from "
                            "step 1 on partition=1 of 2 ring=0",
                            "b averaged: ranks train separately in between when=every 2 steps from "
                            "step 2 on partition=2 of 2 ring=0",
                            "w@GRAD not reduced: ranks update by local gradients, and average "
                            "parameters parameter=w"}));
}

TEST(PartialAveraging, OnePartitionIsAveragedInEveryStepWithoutACounter) {
  const auto result = ExpectRewrite("partial-averaging", kTwoUpdates, R"(
  + var partial_averaging_buffer_0 : fp32[128]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + FusedOutput=[partial_averaging_buffer_0], Output=[w, b] = coalesce_tensor(Input=[w, b]) role=optimize {align_size=256, copy_data=true, dtype=5}
  + Out=[w, b, partial_averaging_buffer_0] = c_wait_compute(X=[w, b, partial_averaging_buffer_0]) role=optimize
  + Out=[partial_averaging_buffer_0] = c_allreduce_avg(X=[partial_averaging_buffer_0]) role=optimize
  + Out=[w, b, partial_averaging_buffer_0] = c_wait_comm(X=[w, b, partial_averaging_buffer_0]) role=optimize
  )");
  EXPECT_THAT(RemarkTexts(result),
              IsSupersetOf({"w averaged: ranks train separately in between when=every step "
                            "partition=1 of 1 ring=0"}));
}

// The example of the rule: parameters of these sizes, in backward order, make four partitions.
TEST(PartialAveraging, PartitionsAreThoseOfTheThresholdRule) {
  std::string vars, ops, startup_vars;
  const int64_t sizes[] = {3000000, 1000000, 1000000, 500000, 100000, 2097152, 2097152, 7};
  for (int i = 0; i < 8; ++i) {
    const std::string shape = absl::StrCat("fp32[", sizes[i], "]");
    absl::StrAppend(&vars, "var p", i, " : ", shape, " parameter persistable\nvar p", i,
                    "@GRAD : ", shape, "\nvar x", i, " : ", shape, " need_check_feed\n");
    absl::StrAppend(&ops, "Out=[p", i, "@GRAD] = scale(X=[x", i, "]) role=backward vars=[p", i,
                    ", p", i, "@GRAD]\n");
  }
  for (int i = 0; i < 8; ++i) {
    absl::StrAppend(&ops, "ParamOut=[p", i, "] = sgd(Param=[p", i, "], Grad=[p", i,
                    "@GRAD], LearningRate=[lr]) role=optimize\n");
  }
  Program main = CompactProgram(absl::StrCat(vars, ops)), startup = CompactProgram("");
  PassContext context;
  ProgramPair programs{&main, &startup};
  WEFT_ASSERT_OK(PartialAveraging(PartialAveraging::Options()).Run(context, programs).status());
  std::vector<std::string> partitions;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.SubBlocks().empty()) continue;
    std::vector<std::string> names;
    for (Symbol name : op.Input("Input")) names.emplace_back(main.name(name));
    partitions.push_back(absl::StrJoin(names, " "));
  }
  EXPECT_THAT(partitions, ElementsAre("p0", "p1 p2 p3", "p4 p5", "p6 p7"));
}

// The parameter is cast in the same step.
TEST(PartialAveraging, MasterWeightIsAveragedAndTheParameterIsItsCast) {
  ExpectRewrite("partial-averaging", R"(
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

TEST(PartialAveraging, DistributedParametersStayLocal) {
  RewriteOptions options;
  options.distributed_params = {"b"};
  const auto result = ExpectRewrite("partial-averaging{threshold=0}", kTwoUpdates, R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  + Out=[w] = c_wait_compute(X=[w]) role=optimize
  + Out=[w] = c_allreduce_avg(X=[w]) role=optimize
  + Out=[w] = c_wait_comm(X=[w]) role=optimize
  )",
                                    options);
}

TEST(PartialAveraging, WrongInputIsRefused) {
  EXPECT_THAT(RewriteStatus("partial-averaging{threshold=3}", kTwoUpdates),
              StatusIs(kRefused, HasSubstr("found 2 partitions")));
  EXPECT_THAT(RewriteStatus("partial-averaging", "Out=[y] = relu(X=[x])"),
              StatusIs(kRefused, HasSubstr("no op updates a replicated parameter")))
      << "required/singa/partial_0";
  EXPECT_THAT(RewriteStatus("partial-averaging{threshold=-1}", kTwoUpdates),
              IsInvalidArgument("threshold: expected an integer >= 0"));
  EXPECT_THAT(RewriteStatus("grad-all-reduce,partial-averaging", kTwoUpdates),
              StatusIs(kRefused, HasSubstr("gradients-reduced already holds")));
  EXPECT_THAT(RewriteStatus("local-sgd,partial-averaging", kTwoUpdates),
              IsInvalidArgument("claims parameters averaged in turn, one partition a step"));
  EXPECT_THAT(RewriteStatus("partial-averaging,partial-averaging", kTwoUpdates),
              StatusIs(kRefused, HasSubstr("parameters-averaged already holds")));
}

}  // namespace
}  // namespace weft::testing
