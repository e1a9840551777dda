#include "transpiler/passes/averaging/averaging_writer.h"

#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_builder.h"

namespace weft::testing {
namespace {

// --- WriteAveragingCondition --------------------------------------------------------------------

// The condition that is written beside `main`.
struct Condition {
  Condition(const AveragingSchedule& schedule, const char* main_text)
      : main(CompactProgram(main_text)), startup(CompactProgram("")) {
    ProgramEdits edits(ProgramPair{&main, &startup});
    name = WriteAveragingCondition(schedule, &edits);
    WEFT_EXPECT_OK(edits.Commit().status());
  }

  Program main, startup;
  std::string name;
};

void ExpectProgram(const Program& found, const std::string& expected) {
  const auto program = ParseCompactProgram(expected, found.ToProto());
  WEFT_ASSERT_OK(program.status());
  EXPECT_EQ(CanonicalText(*program), CanonicalText(found.ToProto()));
}

constexpr char kEvery4Steps[] = R"(
    var local_sgd_step : int64[1] persistable stop_gradient
    var local_sgd_k, local_sgd_remainder, local_sgd_zero : int64[1] stop_gradient
    var local_sgd_is_due : bool[1] stop_gradient
    Out=[local_sgd_step] = increment(X=[local_sgd_step]) role=optimize
    Out=[local_sgd_k] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="4", value=4.0}
    Out=[local_sgd_remainder] = elementwise_mod(X=[local_sgd_step], Y=[local_sgd_k]) role=optimize
    Out=[local_sgd_zero] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="0"}
    Out=[local_sgd_is_due] = equal(X=[local_sgd_remainder], Y=[local_sgd_zero]) role=optimize
  )";

TEST(WriteAveragingCondition, CounterIsAMultipleOfThePeriod) {
  const Condition condition({4, 1}, "");
  EXPECT_EQ(condition.name, "local_sgd_is_due");
  ExpectProgram(condition.main, kEvery4Steps);
  ExpectProgram(condition.startup, R"(
    var local_sgd_step : int64[1] persistable stop_gradient
    Out=[local_sgd_step] = fill_constant() {dtype=3, shape=longs[1], str_value="0"}
  )");
}

// The first multiple of the period is late enough.
TEST(WriteAveragingCondition, FirstStepUpToThePeriodNeedsNoConditionOfItsOwn) {
  const Condition condition({4, 4}, "");
  EXPECT_EQ(condition.name, "local_sgd_is_due");
  ExpectProgram(condition.main, kEvery4Steps);
}

TEST(WriteAveragingCondition, LaterFirstStepIsReached) {
  const Condition condition({4, 5}, "");
  EXPECT_EQ(condition.name, "local_sgd_condition");
  ExpectProgram(condition.main, std::string(kEvery4Steps) + R"(
    var local_sgd_first : int64[1] stop_gradient
    var local_sgd_started, local_sgd_condition : bool[1] stop_gradient
    Out=[local_sgd_first] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="5", value=5.0}
    Out=[local_sgd_started] = greater_equal(X=[local_sgd_step], Y=[local_sgd_first]) role=optimize
    Out=[local_sgd_condition] = logical_and(X=[local_sgd_is_due], Y=[local_sgd_started]) role=optimize
  )");
}

// Unless they would not average either.
TEST(WriteAveragingCondition, EarlyStepsAverageToo) {
  const std::string early = std::string(kEvery4Steps) + R"(
    var local_sgd_begin : int64[1] stop_gradient
    var local_sgd_is_early, local_sgd_is_due_or_early : bool[1] stop_gradient
    Out=[local_sgd_begin] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="3", value=3.0}
    Out=[local_sgd_is_early] = less_than(X=[local_sgd_step], Y=[local_sgd_begin]) role=optimize
    Out=[local_sgd_is_due_or_early] = logical_or(X=[local_sgd_is_due], Y=[local_sgd_is_early]) role=optimize
  )";
  const Condition condition({4, 1, 3}, "");
  EXPECT_EQ(condition.name, "local_sgd_is_due_or_early");
  ExpectProgram(condition.main, early);
  ExpectProgram(Condition({4, 3, 3}, "").main, kEvery4Steps);
  const Condition both({4, 2, 3}, "");
  EXPECT_EQ(both.name, "local_sgd_condition");
  ExpectProgram(both.main, early + R"(
    var local_sgd_first : int64[1] stop_gradient
    var local_sgd_started, local_sgd_condition : bool[1] stop_gradient
    Out=[local_sgd_first] = fill_constant() role=optimize {dtype=3, shape=longs[1], str_value="2", value=2.0}
    Out=[local_sgd_started] = greater_equal(X=[local_sgd_step], Y=[local_sgd_first]) role=optimize
    Out=[local_sgd_condition] = logical_and(X=[local_sgd_is_due_or_early], Y=[local_sgd_started]) role=optimize
  )");
}

TEST(WriteAveragingCondition, NamesThatAreTakenArePassedOver) {
  const Condition condition({4, 1}, "var local_sgd_is_due : fp32[1]\nvar local_sgd_step : fp32[1]");
  EXPECT_EQ(condition.name, "local_sgd_is_due_0");
  EXPECT_TRUE(condition.startup.block(0).FindVar("local_sgd_step_0").valid());
}

// --- WriteAveraging -----------------------------------------------------------------------------

constexpr char kParameters[] = R"(
    var a : fp32[2, 2] parameter persistable
    var b : fp32[65] parameter persistable
    var d : fp64[2] parameter persistable
    var h : fp16[2] parameter persistable
    var m : fp32[2] persistable
  )";

// Expects the ops of `plan` after kParameters to be `expected`.
void ExpectWritten(const AveragingPlan& plan, int nrings, absl::optional<int> nranks,
                   const std::string& expected) {
  Program program = CompactProgram(kParameters);
  ProgramEdits edits(ProgramPair{&program, nullptr});
  AveragingPlace place;
  place.nrings = nrings;
  WriteAveraging(plan, place, nranks, &edits);
  WEFT_EXPECT_OK(edits.Commit().status());
  ExpectProgram(program, expected);
}

AveragingPlan TwoTypes() {
  AveragingPlan plan;
  plan.averaged = {{DType::kFloat32, {"a", "b"}, {{2, 2}, {65}}}, {DType::kFloat64, {"d"}, {{2}}}};
  return plan;
}

TEST(WriteAveraging, TypesAreInFlightTogetherOnRingsInTurn) {
  ExpectWritten(TwoTypes(), /*nrings=*/2, absl::nullopt, R"(
    var local_sgd_buffer_0 : fp32[192]
    FusedOutput=[local_sgd_buffer_0], Output=[a, b] = coalesce_tensor(Input=[a, b]) role=optimize {align_size=256, copy_data=true, dtype=5}
    Out=[a, b, local_sgd_buffer_0] = c_wait_compute(X=[a, b, local_sgd_buffer_0]) role=optimize
    Out=[local_sgd_buffer_0] = c_allreduce_avg(X=[local_sgd_buffer_0]) role=optimize
    Out=[d] = c_wait_compute(X=[d]) role=optimize {ring_id=1}
    Out=[d] = c_allreduce_avg(X=[d]) role=optimize {ring_id=1}
    Out=[a, b, local_sgd_buffer_0] = c_wait_comm(X=[a, b, local_sgd_buffer_0]) role=optimize
    Out=[d] = c_wait_comm(X=[d]) role=optimize {ring_id=1}
  )");
}

TEST(WriteAveraging, KnownNumberOfRanksSumsAndDividesAfterTheWait) {
  ExpectWritten(TwoTypes(), /*nrings=*/1, 4, R"(
    var local_sgd_buffer_0 : fp32[192]
    FusedOutput=[local_sgd_buffer_0], Output=[a, b] = coalesce_tensor(Input=[a, b]) role=optimize {align_size=256, copy_data=true, dtype=5}
    Out=[a, b, local_sgd_buffer_0] = c_wait_compute(X=[a, b, local_sgd_buffer_0]) role=optimize
    Out=[local_sgd_buffer_0] = c_allreduce_sum(X=[local_sgd_buffer_0]) role=optimize
    Out=[d] = c_wait_compute(X=[d]) role=optimize
    Out=[d] = c_allreduce_sum(X=[d]) role=optimize
    Out=[a, b, local_sgd_buffer_0] = c_wait_comm(X=[a, b, local_sgd_buffer_0]) role=optimize
    Out=[local_sgd_buffer_0] = scale(X=[local_sgd_buffer_0]) role=optimize {nranks=4, scale=0.25}
    Out=[d] = c_wait_comm(X=[d]) role=optimize
    Out=[d] = scale(X=[d]) role=optimize {nranks=4, scale=0.25}
  )");
}

TEST(WriteAveraging, CastsAndResetsComeLast) {
  AveragingPlan plan;
  plan.averaged = {{DType::kFloat32, {"m"}, {{2}}}};
  plan.casts = {{"m", "h", DType::kFloat32, DType::kFloat16}};
  plan.resets = {{"d", BuildOp(FillOp("d", DType::kFloat64, {2}, 0, kRoleOptimize))}};
  ExpectWritten(plan, /*nrings=*/1, absl::nullopt, R"(
    Out=[m] = c_wait_compute(X=[m]) role=optimize
    Out=[m] = c_allreduce_avg(X=[m]) role=optimize
    Out=[m] = c_wait_comm(X=[m]) role=optimize
    Out=[h] = cast(X=[m]) role=optimize {in_dtype=5, out_dtype=4}
    Out=[d] = fill_constant() role=optimize {dtype=6, shape=longs[2]}
  )");
}

TEST(WriteAveraging, EmptyPlanWritesNothing) {
  ExpectWritten(AveragingPlan(), /*nrings=*/1, absl::nullopt, "");
}

}  // namespace
}  // namespace weft::testing
