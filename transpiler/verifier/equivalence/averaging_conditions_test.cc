#include "transpiler/verifier/equivalence/averaging_conditions.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr absl::string_view kOneDevice = R"(
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
)";

TEST(AveragingConditions, AveragesOnAConditionThatChanges) {
  const Program original = ProgramOf(kOneDevice), program = ProgramOf(kEveryOtherStep);
  EXPECT_THAT(Errors({{&program}}, &original), IsEmpty());
}

TEST(AveragingConditions, MayNotRelyOnAConstantCounter) {
  const Program original = ProgramOf(kOneDevice);
  const Program program =
      ProgramOf(kEveryOtherStep, {{"    Out=[step] = increment(X=[step]) {step=1.0}\n", ""}});
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("error: W605: variable w, last written by op 5"),
                                HasSubstr("which is the same in every step"))));
}

// --- In turn -------------------------------------------------------------------------------------

constexpr absl::string_view kOneDeviceTwo = R"(
    var w, u : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
    ParamOut=[u] = sgd(Param=[u], Grad=[x], LearningRate=[lr])
)";

// Averages w in steps 1, 3, ... and u in steps 2, 4, ...
constexpr absl::string_view kInTurn = R"(
    var w, u : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    var step : int64[1] persistable
    var rest : int64[1]
    var due_1 : bool[1]
    var scope_1 : step_scopes
    var due_2 : bool[1]
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
    ParamOut=[u] = sgd(Param=[u], Grad=[x], LearningRate=[lr])
    Out=[step] = increment(X=[step]) {step=1.0}
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=2.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) {axis=-1}
    Out=[phase_1] = fill_constant() {shape=longs[1], dtype=3, value=1.0}
    Out=[due_1] = equal(X=[rest], Y=[phase_1])
    Out=[w], Scope=[scope_1] = conditional_block(Cond=[due_1], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[phase_2] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[due_2] = equal(X=[rest], Y=[phase_2])
    Out=[u], Scope=[scope_2] = conditional_block(Cond=[due_2], Input=[u]) {sub_block=block(2), is_scalar_condition=true}
    block 1:
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
    block 2:
    Out=[u] = c_allreduce_avg(X=[u]) {ring_id=0, use_calc_stream=true}
)";

constexpr absl::string_view kCounterStartup = R"(
    var w, u : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[u] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    c_comm_init_all() {ring_id=0}
)";

std::vector<std::string> ErrorsInTurn(const Edits& edits,
                                      absl::optional<AveragingSchedule> expected,
                                      absl::string_view text = kInTurn) {
  const Program original = ProgramOf(kOneDeviceTwo), program = ProgramOf(text, edits),
                startup = ProgramOf(kCounterStartup);
  VerifyOptions options = ForRanks(2);
  options.original = {&original, nullptr};
  options.setting.averaging = expected;
  std::vector<std::string> errors;
  for (const std::string& line : Lines(Verify({{&program, &startup}}, options))) {
    if (absl::StartsWith(line, "error: ")) errors.push_back(line);
  }
  return errors;
}
std::vector<std::string> ErrorsInTurn(const Edits& edits = {}) {
  return ErrorsInTurn(edits, AveragingSchedule::InTurn());
}

TEST(AveragingConditions, PartitionsTakeTurns) {
  EXPECT_THAT(ErrorsInTurn(), IsEmpty());
  EXPECT_THAT(ErrorsInTurn({}, absl::nullopt), IsEmpty());
  EXPECT_THAT(ErrorsInTurn({}, AveragingSchedule{2, 1}),
              ElementsAre(AllOf(StartsWith("error: W605: variable w"),
                                HasSubstr("which holds in step 1, expected every 2 steps"))));
}

TEST(AveragingConditions, PartitionThatIsNeverAveraged) {
  EXPECT_THAT(
      ErrorsInTurn({{"[phase_1] = fill_constant() {shape=longs[1], dtype=3, value=1.0}",
                     "[phase_1] = fill_constant() {shape=longs[1], dtype=3, value=2.0}"}}),
      ElementsAre(AllOf(StartsWith("error: W605: variable w"),
                        HasSubstr("which does not hold in step 1, expected step 1 and every 2 "
                                  "steps from there, as the 2 partitions"))));
  // Its block averages nothing.
  EXPECT_THAT(
      ErrorsInTurn({{"    Out=[w] = c_allreduce_avg(X=[w])", "    Out=[w] = assign(X=[w])"}}),
      Contains(HasSubstr("variable w")));
}

TEST(AveragingConditions, PartitionThatIsAveragedTooOftenOrTooSeldom) {
  // In every step.
  EXPECT_THAT(ErrorsInTurn({{"dtype=3, value=2.0}", "dtype=3, value=1.0}"}}),
              ElementsAre(HasSubstr("variable w"), HasSubstr("variable u")));
  // Every third step: no third partition takes the third turn.
  EXPECT_THAT(ErrorsInTurn({{"dtype=3, value=2.0}", "dtype=3, value=3.0}"}}),
              ElementsAre(AllOf(HasSubstr("variable w"),
                                HasSubstr("which does not hold in step 3, expected step 1")),
                          AllOf(HasSubstr("variable u"),
                                HasSubstr("which does not hold in step 2, expected step 2"))));
  // Both blocks average w.
  EXPECT_THAT(ErrorsInTurn(
                  {{"    Out=[u] = c_allreduce_avg(X=[u])", "    Out=[w] = c_allreduce_avg(X=[w])"},
                   {"Out=[u], Scope=[scope_2] = conditional_block(Cond=[due_2], "
                    "Input=[u])",
                    "Out=[w], Scope=[scope_2] = conditional_block(Cond=[due_2], "
                    "Input=[w])"}}),
              Contains(StartsWith("error: W601: variable w")));
}

// No condition says that they are two: what is computed is the same.
TEST(AveragingConditions, PartitionsMayNotShareAStep) {
  const Edits edits = {
      {"Out=[due_2] = equal(X=[rest], Y=[phase_2])", "Out=[due_2] = equal(X=[phase_1], Y=[rest])"}};
  EXPECT_THAT(
      ErrorsInTurn(edits),
      ElementsAre(AllOf(HasSubstr("variable u"), HasSubstr("holds in step 1, expected step 2"))));
}

TEST(AveragingConditions, PartitionsTakeTurnsInTheOrderOfTheProgram) {
  EXPECT_THAT(ErrorsInTurn({{"dtype=3, value=1.0}", "dtype=3, value=7.0}"},
                            {"dtype=3, value=0.0}", "dtype=3, value=1.0}"},
                            {"dtype=3, value=7.0}", "dtype=3, value=0.0}"}}),
              ElementsAre(AllOf(HasSubstr("variable w"),
                                HasSubstr("which does not hold in step 1, expected step 1")),
                          AllOf(HasSubstr("variable u"),
                                HasSubstr("which holds in step 1, expected step 2"))));
}

// Of two writes, the last counts.
TEST(AveragingConditions, PhaseMayBeWrittenTwice) {
  const auto with_second = [](absl::string_view value) {
    constexpr absl::string_view kFill =
        "    Out=[phase_1] = fill_constant() {shape=longs[1], dtype=3, value=1.0}\n";
    return ErrorsInTurn(
        {{kFill, absl::StrCat(
                     kFill, "    Out=[phase_1] = fill_constant() {shape=longs[1], dtype=3, value=",
                     value, "}\n")}});
  };
  EXPECT_THAT(with_second("1.0"), IsEmpty());
  EXPECT_THAT(
      with_second("0.0"),
      AllOf(SizeIs(2), Each(HasSubstr("does not hold in step 1, expected every step, as all "
                                      "parameters are averaged on one condition"))));
}

TEST(AveragingConditions, AverageComesAfterTheUpdate) {
  constexpr absl::string_view kUpdate =
      "    ParamOut=[u] = sgd(Param=[u], Grad=[x], LearningRate=[lr])\n";
  constexpr absl::string_view kBlock =
      "    Out=[u], Scope=[scope_2] = conditional_block(Cond=[due_2], Input=[u]) "
      "{sub_block=block(2), is_scalar_condition=true}\n";
  EXPECT_THAT(ErrorsInTurn({{kUpdate, ""}, {kBlock, absl::StrCat(kBlock, kUpdate)}}),
              Contains(AllOf(HasSubstr("variable u"), Not(HasSubstr("variable w")))));
}

TEST(AveragingConditions, SumIsNoAverage) {
  EXPECT_THAT(ErrorsInTurn({{"    Out=[u] = c_allreduce_avg(X=[u])",
                             "    Out=[u] = c_allreduce_sum(X=[u])"}}),
              Contains(HasSubstr("variable u")));
  EXPECT_THAT(ErrorsInTurn({{"    Out=[u] = c_allreduce_avg(X=[u]) {ring_id=0, "
                             "use_calc_stream=true}",
                             "    Out=[u] = c_allreduce_sum(X=[u]) {ring_id=0, "
                             "use_calc_stream=true}\n    Out=[u] = scale(X=[u]) {scale=0.25}"}}),
              Contains(HasSubstr("variable u")));
}

TEST(AveragingConditions, AveragesInEveryStepAreNoTurns) {
  EXPECT_THAT(ErrorsInTurn({{"[w], Scope=[scope_1] = conditional_block(Cond=[due_1], Input=[w]) "
                             "{sub_block=block(1), is_scalar_condition=true}",
                             "[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}"},
                            {"sub_block=block(2)", "sub_block=block(1)"},
                            {"    block 1:\n    Out=[w] = c_allreduce_avg(X=[w]) "
                             "{ring_id=0, use_calc_stream=true}\n    block 2",
                             "    block 1"}}),
              Contains(AllOf(StartsWith("error: W605: variable w"),
                             HasSubstr("averaged over the ranks in every step, expected step 2 "
                                       "and every 2 steps"))));
}

// Steps times ops are bounded: 10000 steps of 7000 ops would take half a second for each condition.
TEST(AveragingConditions, LongChainsAreNotFollowed) {
  constexpr char kIncrement[] = "    Out=[step] = increment(X=[step]) {step=1.0}\n";
  std::string chain;
  for (int i = 0; i < 7001; ++i) chain += kIncrement;
  EXPECT_THAT(ErrorsInTurn({{kIncrement, chain}}),
              Contains(AllOf(StartsWith("error: W605: variable w"),
                             HasSubstr("which cannot be followed: it depends on 7"),
                             HasSubstr(" ops, too many for 10000 steps"))));
  EXPECT_THAT(ErrorsInTurn({{kIncrement, chain.substr(0, 701 * std::strlen(kIncrement))}}),
              IsEmpty());
}

// Each is followed for as many steps as there are partitions, in linear time.
TEST(AveragingConditions, ManyPartitionsTakeTurns) {
  constexpr int kPartitions = 20000;
  std::string vars = "    var lr : fp32[1] persistable\n    var step : int64[1] persistable\n";
  std::string original_vars = "    var lr : fp32[1] persistable\n", updates, turns, blocks;
  absl::StrAppend(&vars, "    var rest : int64[1]\n");
  for (int i = 1; i <= kPartitions; ++i) {
    const std::string param =
        absl::StrCat("    var w", i, " : fp32[1] parameter persistable\n    var x", i,
                     " : fp32[1] need_check_feed stop_gradient\n");
    absl::StrAppend(&original_vars, param);
    absl::StrAppend(&vars, param, "    var phase", i, " : int64[1]\n    var due", i,
                    " : bool[1]\n    var scope", i, " : step_scopes\n");
    absl::StrAppend(&updates, "    ParamOut=[w", i, "] = sgd(Param=[w", i, "], Grad=[x", i,
                    "], LearningRate=[lr])\n");
    absl::StrAppend(&turns, "    Out=[phase", i,
                    "] = fill_constant() {shape=longs[1], dtype=3, value=", i % kPartitions,
                    ".0}\n    Out=[due", i, "] = equal(X=[rest], Y=[phase", i, "])\n    Out=[w", i,
                    "], Scope=[scope", i, "] = conditional_block(Cond=[due", i, "], Input=[w", i,
                    "]) {sub_block=block(", i, "), is_scalar_condition=true}\n");
    absl::StrAppend(&blocks, "    block ", i, ":\n    Out=[w", i, "] = c_allreduce_avg(X=[w", i,
                    "]) {ring_id=0, use_calc_stream=true}\n");
  }
  const Program original = ProgramOf(original_vars + updates);
  const Program program = ProgramOf(
      absl::StrCat(vars, updates,
                   "    Out=[step] = increment(X=[step]) {step=1.0}\n    Out=[k] = fill_constant() "
                   "{shape=longs[1], dtype=3, value=",
                   kPartitions, ".0}\n",
                   "    Out=[rest] = elementwise_mod(X=[step], Y=[k]) {axis=-1}\n", turns, blocks));
  const Program startup = ProgramOf(kCounterStartup);
  VerifyOptions options = ForRanks(2);
  options.original = {&original, nullptr};
  options.layers = {Layer::kEquivalence};
  options.setting.averaging = AveragingSchedule::InTurn();
  EXPECT_THAT(Lines(Verify({{&program, &startup}}, options)), IsEmpty());
  // Without a schedule, conditions are followed until each has held twice.
  options.setting.averaging = absl::nullopt;
  EXPECT_THAT(Lines(Verify({{&program, &startup}}, options)), IsEmpty());
}

// --- In groups of ranks --------------------------------------------------------------------------

// Of four ranks, two and two average in steps 2, 6, 10, ..., and all of them in steps 4, 8, ...
constexpr absl::string_view kInGroups = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    var step : int64[1] persistable
    var k : int64[1]
    var all : int64[1]
    var none : int64[1]
    var rest : int64[1]
    var rest_of_all : int64[1]
    var due : bool[1]
    var differs : bool[1]
    var in_groups : bool[1]
    var of_all : bool[1]
    var scope : step_scopes
    var other_scope : step_scopes
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
    Out=[step] = increment(X=[step]) {step=1.0}
    Out=[k] = fill_constant() {shape=longs[1], dtype=3, value=2.0}
    Out=[all] = fill_constant() {shape=longs[1], dtype=3, value=4.0}
    Out=[none] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    Out=[rest] = elementwise_mod(X=[step], Y=[k]) {axis=-1}
    Out=[rest_of_all] = elementwise_mod(X=[step], Y=[all]) {axis=-1}
    Out=[due] = equal(X=[rest], Y=[none])
    Out=[differs] = not_equal(X=[rest_of_all], Y=[none])
    Out=[in_groups] = logical_and(X=[due], Y=[differs])
    Out=[of_all] = equal(X=[rest_of_all], Y=[none])
    Out=[w], Scope=[scope] = conditional_block(Cond=[in_groups], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[w], Scope=[other_scope] = conditional_block(Cond=[of_all], Input=[w]) {sub_block=block(2), is_scalar_condition=true}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {group_ranks=ints[0, 1], ring_id=1, use_calc_stream=true}
    Out=[w] = c_allreduce_avg(X=[w]) {group_ranks=ints[2, 3], ring_id=2, use_calc_stream=true}
  }
  block 2 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})";

constexpr absl::string_view kGroupStartup = R"(
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    c_comm_init_all() {ring_id=0}
    c_comm_init_all() {group_ranks=ints[0, 1], ring_id=1}
    c_comm_init_all() {group_ranks=ints[2, 3], ring_id=2}
)";

AveragingSchedule Groups(int period, int size, int rounds) {
  AveragingSchedule schedule;
  schedule.period = period;
  schedule.group_size = size;
  schedule.rounds = rounds;
  return schedule;
}

std::vector<std::string> ErrorsInGroups(const Edits& edits,
                                        absl::optional<AveragingSchedule> expected,
                                        int nranks = 4) {
  const Program original = ProgramOf(kOneDevice), program = ProgramOf(kInGroups, edits),
                startup = ProgramOf(kGroupStartup);
  VerifyOptions options = ForRanks(nranks);
  options.original = {&original, nullptr};
  options.setting.averaging = expected;
  std::vector<std::string> errors;
  for (const std::string& line : Lines(Verify({{&program, &startup}}, options))) {
    if (absl::StartsWith(line, "error: ")) errors.push_back(line);
  }
  return errors;
}

TEST(AveragingConditions, GroupsAverageOftenAndAllRanksRarely) {
  EXPECT_THAT(ErrorsInGroups({}, Groups(2, 2, 2)), IsEmpty());
}

TEST(AveragingConditions, GroupsAreThoseOfTheSchedule) {
  for (const absl::optional<AveragingSchedule>& expected :
       {absl::optional<AveragingSchedule>(), absl::make_optional(AveragingSchedule{4, 1}),
        absl::make_optional(AveragingSchedule{2, 1}), absl::make_optional(Groups(2, 2, 3)),
        absl::make_optional(Groups(4, 2, 2)), absl::make_optional(Groups(1, 2, 4)),
        absl::make_optional(Groups(2, 4, 2))}) {
    EXPECT_THAT(ErrorsInGroups({}, expected), Not(IsEmpty()));
  }
  // Ranks 4 and 5 have no group.
  EXPECT_THAT(ErrorsInGroups({}, Groups(2, 2, 2), /*nranks=*/6), Not(IsEmpty()));
}

TEST(AveragingConditions, MistakesInGroups) {
  const Edits mistakes[] = {
      // A group that does not average, that does so alone, or twice.
      {{"    Out=[w] = c_allreduce_avg(X=[w]) {group_ranks=ints[2, 3], ring_id=2, "
        "use_calc_stream=true}\n",
        ""}},
      {{"c_allreduce_avg(X=[w]) {group_ranks=ints[2, 3], ring_id=2",
        "c_allreduce_avg(X=[w]) {group_ranks=ints[0, 1], ring_id=1"}},
      {{"c_allreduce_avg(X=[w]) {group_ranks=ints[2, 3]",
        "c_allreduce_sum(X=[w]) {group_ranks=ints[2, 3]"}},
      {{"c_allreduce_avg(X=[w]) {group_ranks=ints[0, 1]",
        "c_allreduce_max(X=[w]) {group_ranks=ints[0, 1]"}},
      // A change between two groups.
      {{"    Out=[w] = c_allreduce_avg(X=[w]) {group_ranks=ints[2",
        "    Out=[w] = scale(X=[w]) {scale=2.0}\n    Out=[w] = c_allreduce_avg(X=[w]) "
        "{group_ranks=ints[2"}},
      // All ranks never average, or in other steps.
      {{"    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0",
        "    Out=[w] = assign(X=[w]) {ring_id=0"}},
      {{"value=4.0", "value=8.0"}},
      {{"value=2.0", "value=3.0"}},
      {{"Cond=[of_all]", "Cond=[differs]"}},
      {{"Cond=[in_groups]", "Cond=[due]"}},
      {{"Cond=[in_groups]", "Cond=[differs]"}},
      {{"logical_and(X=[due]", "logical_or(X=[due]"}},
  };
  for (const Edits& mistake : mistakes) {
    EXPECT_THAT(ErrorsInGroups(mistake, Groups(2, 2, 2)), Not(IsEmpty())) << mistake[0].second;
  }
}

}  // namespace
}  // namespace weft::testing
