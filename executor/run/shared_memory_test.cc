// What one of two names that share memory writes, the other has. The values are those of Paddle
// 2.6.2, which runs the ops of the first step in the order of the program.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/cpu/testing.h"
#include "proto/testing/block_text.h"

namespace weft::testing {
namespace {

using Row = std::vector<float>;
using State = std::map<std::string, Row>;

// x: 3, -2, 0.5, -0.25; w is 2, and lr 0.5.
constexpr char kVars[] = R"(
    var g : fp32[4]
    var h : fp32[4]
    var k : fp32[4]
    var s : fp32[4] persistable
    var t : fp32[4] persistable
    var w : fp32[4] persistable
    var kept : fp32[4] persistable
    var lr : fp32[1] persistable
    var i : int64[1]
    var n : int64[1]
    var c : bool[1]
    var scope : step_scopes
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=2.0}
    Out=[g] = assign_value() {shape=ints[4], dtype=5, fp32_values=floats[3.0, -2.0, 0.5, -0.25]}
)";
constexpr char kShare[] = "    Out=[h] = share_data(X=[g])\n";
constexpr char kClip[] = "    Out=[g] = clip(X=[g]) {min=-1.0, max=1.0}\n";
constexpr char kRead[] = "    Out=[s] = assign(X=[h])\n";

class SharedMemoryTest : public ::testing::Test {
 protected:
  // After a step, of these variables.
  static State Run(const std::vector<std::string>& fetched, const std::string& ops,
                   const std::string& blocks = "") {
    const Program program = BlockProgram(absl::StrCat(kVars, ops), blocks);
    RunOptions options;
    options.kernels = &CpuKernels();
    options.steps = 1;
    options.fetch = fetched;
    State state;
    RunInputs inputs;
    inputs.main = &program;
    inputs.on_result = [&](const StepResult& result) {
      for (size_t i = 0; i < fetched.size(); ++i) {
        state[fetched[i]] = Values<float>(result.values[i]);
      }
      return absl::OkStatus();
    };
    const absl::StatusOr<RunResult> run = RunProgram(inputs, options);
    EXPECT_THAT(run.status(), IsOk());
    return state;
  }
};

const Row kClipped = {1, -1, 0.5, -0.25};

TEST_F(SharedMemoryTest, AWriteInPlaceIsSeen) {
  EXPECT_EQ(Run({"g", "h", "s"}, absl::StrCat(kShare, kClip, kRead)),
            (State{{"g", kClipped}, {"h", kClipped}, {"s", kClipped}}));
  EXPECT_EQ(Run({"h"}, absl::StrCat(kShare, kClip)), (State{{"h", kClipped}})) << "fetched only";
}

TEST_F(SharedMemoryTest, AWriteUnderTheOtherNameIsSeen) {
  const Row twice = {6, -4, 1, -0.5};
  EXPECT_EQ(Run({"g", "h", "s"}, absl::StrCat(kShare, "    Out=[h] = scale(X=[h]) {scale=2.0}\n",
                                              "    Out=[s] = assign(X=[g])\n")),
            (State{{"g", twice}, {"h", twice}, {"s", twice}}));
}

TEST_F(SharedMemoryTest, NamesOfNamesShareToo) {
  EXPECT_EQ(Run({"s", "t"}, absl::StrCat(kShare, "    Out=[k] = share_data(X=[h])\n", kClip, kRead,
                                         "    Out=[t] = assign(X=[k])\n")),
            (State{{"s", kClipped}, {"t", kClipped}}));
}

TEST_F(SharedMemoryTest, WhatOverwritesAValueIsSeen) {
  EXPECT_EQ(
      Run({"g", "s", "t"},
          absl::StrCat(kShare, "    Out=[g] = elementwise_add(X=[w], Y=[w]) {axis=-1}\n", kRead,
                       "    Out=[g] = fill_constant() {shape=longs[4], dtype=5, value=9.0}\n",
                       "    Out=[t] = assign(X=[h])\n")),
      (State{{"g", {9, 9, 9, 9}}, {"s", {4, 4, 4, 4}}, {"t", {9, 9, 9, 9}}}));
}

TEST_F(SharedMemoryTest, AnUpdateOfAParameterIsSeen) {
  const Row updated = {0.5, 3, 1.75, 2.125};
  EXPECT_EQ(Run({"h", "w", "s"},
                absl::StrCat("    Out=[h] = share_data(X=[w])\n"
                             "    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr])\n",
                             kRead)),
            (State{{"h", updated}, {"w", updated}, {"s", updated}}));
}

TEST_F(SharedMemoryTest, MemoryThatIsSharedAgainIsAnother) {
  EXPECT_EQ(Run({"s", "t", "w"}, absl::StrCat(kShare, kClip, "    Out=[h] = share_data(X=[w])\n",
                                              "    Out=[h] = scale(X=[h]) {scale=3.0}\n", kRead,
                                              "    Out=[t] = assign(X=[g])\n")),
            (State{{"s", {6, 6, 6, 6}}, {"t", kClipped}, {"w", {6, 6, 6, 6}}}));
}

TEST_F(SharedMemoryTest, AnOpMayReadBothNames) {
  const Row square = {9, 4, 0.25, 0.0625};
  EXPECT_EQ(Run({"g", "h", "s"},
                absl::StrCat(kShare, "    Out=[h] = elementwise_mul(X=[g], Y=[h]) {axis=-1}\n",
                             "    Out=[s] = elementwise_add(X=[g], Y=[h]) {axis=-1}\n")),
            (State{{"g", square}, {"h", square}, {"s", {18, 8, 0.5, 0.125}}}));
}

TEST_F(SharedMemoryTest, AStateThatSharesMemoryIsKept) {
  EXPECT_EQ(Run({"kept"}, absl::StrCat("    Out=[kept] = share_data(X=[g])\n", kClip)),
            (State{{"kept", kClipped}}));
}

TEST_F(SharedMemoryTest, BranchesWriteWhereTheyRun) {
  const auto branch = [](const char* condition, int block) {
    return absl::StrCat(
        "    Out=[c] = fill_constant() {shape=longs[1], dtype=0, value=", condition,
        "}\n    Out=[g], Scope=[scope] = conditional_block(Cond=[c], Input=[g]) {sub_block=block(",
        block, "), is_scalar_condition=true}\n");
  };
  EXPECT_EQ(Run({"g", "s"}, absl::StrCat(kShare, branch("1.0", 1), branch("0.0", 2), kRead),
                "  block 1 parent=0 {\n    Out=[g] = scale(X=[g]) {scale=2.0}\n  }\n"
                "  block 2 parent=0 {\n    Out=[g] = scale(X=[g]) {scale=100.0}\n  }\n"),
            (State{{"g", {6, -4, 1, -0.5}}, {"s", {6, -4, 1, -0.5}}}));
}

TEST_F(SharedMemoryTest, LoopsWriteInEachTurn) {
  const Row times8 = {24, -16, 4, -2};
  EXPECT_EQ(
      Run({"g", "s", "t"},
          absl::StrCat(kShare,
                       "    Out=[i] = fill_constant() {shape=longs[1], dtype=3, value=0.0}\n"
                       "    Out=[n] = fill_constant() {shape=longs[1], dtype=3, value=3.0}\n"
                       "    Out=[c] = less_than(X=[i], Y=[n])\n"
                       "    Out=[g, i, t, c], StepScopes=[scope] = while(Condition=[c], X=[g, h, "
                       "i, n]) {sub_block=block(1), is_test=true}\n",
                       kRead),
          "  block 1 parent=0 {\n    Out=[g] = scale(X=[g]) {scale=2.0}\n"
          "    Out=[t] = assign(X=[h])\n    Out=[i] = increment(X=[i]) {step=1.0}\n"
          "    Out=[c] = less_than(X=[i], Y=[n])\n  }\n"),
      (State{{"g", times8}, {"s", times8}, {"t", times8}}));
}

}  // namespace
}  // namespace weft::testing
