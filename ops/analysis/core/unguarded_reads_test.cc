#include "ops/analysis/core/unguarded_reads.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kVars[] =
    "var x : fp32[2] need_check_feed\n"
    "var c : bool[1] need_check_feed\n"
    "var d : bool[1] need_check_feed\n"
    "var no : bool[1]\nvar mask : int32[1]\nvar both : bool[1]\n"
    "var v : fp32[2]\nvar u : fp32[2]\nvar y : fp32[2]\nvar scope : step_scopes\n"
    "var w : fp32[2] persistable\nvar fused : fp32[64]\n";

std::string If(const std::string& condition, int block) {
  return absl::StrCat("Out=[], Scope=[scope] = conditional_block(Cond=[", condition,
                      "], Input=[]) {sub_block=block(", block, "), is_scalar_condition=true}\n");
}
std::string Block(int number, const std::string& ops, int parent = 0) {
  return absl::StrCat("block ", number, " parent=", parent, " {\n", ops, "}\n");
}
constexpr char kWriteV[] = "Out=[v] = relu(X=[x])\n";
constexpr char kReadV[] = "Out=[y] = relu(X=[v])\n";
constexpr char kNot[] = "Out=[no] = logical_not(X=[c])\n";

// "v by 2": op 2 is the reader.
std::vector<std::string> Found(const std::string& ops, const std::string& blocks) {
  const Program program = testing::BlockProgram(absl::StrCat(kVars, ops), blocks);
  std::vector<std::string> found;
  for (const UnguardedRead& read : FindUnguardedReads(program)) {
    found.push_back(absl::StrCat(program.var(read.var).name(), " by ", read.op.value()));
    EXPECT_GT(program.op(read.writer).SubBlocks().size(), 0);
  }
  return found;
}

TEST(UnguardedReads, ReadAfterABranchMayFindNothing) {
  EXPECT_THAT(Found(absl::StrCat(If("c", 1), kReadV, kReadV), Block(1, kWriteV)),
              ElementsAre("v by 1"));
}

TEST(UnguardedReads, WriteBeforeOrAfterTheBranchIsEnough) {
  EXPECT_THAT(Found(absl::StrCat(kWriteV, If("c", 1), kReadV), Block(1, kWriteV)), IsEmpty());
  EXPECT_THAT(Found(absl::StrCat(If("c", 1), kWriteV, kReadV), Block(1, kWriteV)), IsEmpty());
}

TEST(UnguardedReads, PersistableVariablesHaveAValue) {
  EXPECT_THAT(Found(absl::StrCat(If("c", 1), "Out=[y] = relu(X=[w])\n"),
                    Block(1, "Out=[w] = relu(X=[x])\n")),
              IsEmpty());
}

TEST(UnguardedReads, BlockWithTheSameConditionReadsWhatIsThere) {
  const std::string blocks = Block(1, kWriteV) + Block(2, kReadV);
  EXPECT_THAT(Found(If("c", 1) + If("c", 2), blocks), IsEmpty());
  EXPECT_THAT(Found(If("c", 1) + If("d", 2), blocks), ElementsAre("v by 3"));
  EXPECT_THAT(Found(kNot + If("c", 1) + If("no", 2), blocks), ElementsAre("v by 4"));
  EXPECT_THAT(
      Found(If("c", 1) + "Out=[both] = logical_and(X=[c], Y=[d])\n" + If("both", 2), blocks),
      IsEmpty());
  EXPECT_THAT(Found("Out=[both] = logical_or(X=[c], Y=[d])\n" + If("c", 1) + If("both", 2), blocks),
              ElementsAre("v by 4"));
}

TEST(UnguardedReads, BlockThatAlwaysRunsIsNoBranch) {
  const auto after = [](const std::string& ops) {
    return Found(ops + If("no", 1) + kReadV, Block(1, kWriteV));
  };
  const auto fill = [](const char* value) {
    return absl::StrCat("Out=[no] = fill_constant() {shape=longs[1], dtype=0, value=", value,
                        "}\n");
  };
  EXPECT_THAT(after(fill("1.0")), IsEmpty());
  EXPECT_THAT(after(fill("0.0")), ElementsAre("v by 2"));
  EXPECT_THAT(after(fill("1.0") + "Out=[no] = logical_not(X=[no])\n"), ElementsAre("v by 3"));
  EXPECT_THAT(after(fill("1.0") + "Out=[no] = logical_and(X=[no], Y=[c])\n"),
              ElementsAre("v by 3"));
}

TEST(UnguardedReads, ConditionThatWasWrittenIsAnother) {
  EXPECT_THAT(Found(If("c", 1) + "Out=[c] = logical_and(X=[c], Y=[d])\n" + If("d", 2),
                    Block(1, kWriteV) + Block(2, kReadV)),
              ElementsAre("v by 4"));
  EXPECT_THAT(Found(If("c", 1) + "Out=[c] = logical_or(X=[c], Y=[d])\n" + If("c", 2),
                    Block(1, kWriteV) + Block(2, kReadV)),
              ElementsAre("v by 4"));
}

TEST(UnguardedReads, OfTwoOppositeBlocksOneRuns) {
  const std::string blocks = Block(1, kWriteV) + Block(2, kWriteV);
  EXPECT_THAT(Found(absl::StrCat(kNot, If("c", 1), If("no", 2), kReadV), blocks), IsEmpty());
  EXPECT_THAT(Found(absl::StrCat(kNot, If("c", 1), If("d", 2), kReadV), blocks),
              ElementsAre("v by 3"));
}

// c; not c and d; not c and not d.
TEST(UnguardedReads, OfAllCasesOfASwitchOneRuns) {
  const std::string cases =
      absl::StrCat(If("c", 1), kNot, "Out=[both] = logical_and(X=[no], Y=[d])\n", If("both", 2),
                   "Out=[both] = logical_not(X=[d])\nOut=[both] = logical_and(X=[no], Y=[both])\n");
  const std::string blocks = Block(1, kWriteV) + Block(2, kWriteV) + Block(3, kWriteV);
  EXPECT_THAT(Found(absl::StrCat(cases, If("both", 3), kReadV), blocks), IsEmpty());
  EXPECT_THAT(Found(absl::StrCat(cases, kReadV), blocks), ElementsAre("v by 6"));
}

TEST(UnguardedReads, SelectTakesTheVariableThatWasWritten) {
  const std::string cast = "Out=[mask] = cast(X=[c]) {in_dtype=0, out_dtype=2}\n";
  const std::string both = kNot + cast + If("c", 1) + If("no", 2);
  const std::string blocks = Block(1, kWriteV) + Block(2, "Out=[u] = relu(X=[x])\n");
  EXPECT_THAT(Found(both + "Out=[y] = select_input(X=[u, v], Mask=[mask])\n", blocks), IsEmpty());
  EXPECT_THAT(Found(both + "Out=[y] = select_input(X=[v, u], Mask=[mask])\n", blocks),
              ElementsAre("v by 4", "u by 4"));
}

TEST(UnguardedReads, NestedBlockRunsOnBothConditions) {
  const std::string blocks = Block(1, If("d", 2)) + Block(2, kWriteV, 1) + Block(3, kReadV);
  EXPECT_THAT(Found(If("c", 1) + If("c", 3), blocks), ElementsAre("v by 4"));
  EXPECT_THAT(
      Found(If("c", 1) + "Out=[both] = logical_and(X=[d], Y=[c])\n" + If("both", 3), blocks),
      IsEmpty());
}

TEST(UnguardedReads, LoopMayNotRun) {
  const std::string loop =
      "Out=[], StepScopes=[scope] = while(X=[], Condition=[c]) {sub_block=block(1)}\n";
  EXPECT_THAT(Found(loop + kReadV, Block(1, kWriteV)), ElementsAre("v by 1"));
  EXPECT_THAT(Found(kWriteV + loop + kReadV, Block(1, kWriteV)), IsEmpty());
}

TEST(UnguardedReads, GradientOfALoopRunsIfTheLoopHas) {
  const std::string of_while =
      "Out=[], StepScopes=[scope] = while(X=[], Condition=[c]) {sub_block=block(1)}\n"
      "X@GRAD=[] = while_grad(X=[], Out=[], Out@GRAD=[], StepScopes=[scope]) "
      "{sub_block=block(2)}\n";
  const std::string of_recurrent =
      "outputs=[], step_scopes=[scope] = recurrent(initial_states=[], inputs=[], parameters=[]) "
      "{sub_block=block(1)}\n"
      "inputs@GRAD=[] = recurrent_grad(initial_states=[], inputs=[], outputs=[], outputs@GRAD=[], "
      "parameters=[], step_scopes=[scope]) {sub_block=block(2)}\n";
  for (const std::string& ops : {of_while, of_recurrent}) {
    EXPECT_THAT(Found(ops, Block(1, kWriteV) + Block(2, kReadV, /*parent=*/1)), IsEmpty()) << ops;
  }
}

TEST(UnguardedReads, WhatABlockMakesOfAConditionCountsInItAlone) {
  const std::string blocks =
      Block(1, "Out=[both] = assign(X=[d])\n") + Block(2, kWriteV) + Block(3, kReadV);
  EXPECT_THAT(
      Found("Out=[both] = assign(X=[c])\n" + If("no", 1) + If("d", 2) + If("both", 3), blocks),
      ElementsAre("v by 6"));
}

TEST(UnguardedReads, LoopMayReadBeforeItWrites) {
  EXPECT_THAT(Found("Out=[], StepScopes=[scope] = while(X=[], Condition=[c]) {sub_block=block(1)}\n"
                    "Out=[u] = relu(X=[v])\n",
                    Block(1, absl::StrCat(kReadV, kWriteV))),
              ElementsAre("v by 1"));
}

TEST(UnguardedReads, CopyToTheOtherDeviceHasWhatIsThere) {
  const std::string copy = If("c", 1) + "Out=[u] = memcpy_d2h(X=[v])\n";
  const std::string read = "Out=[y] = relu(X=[u])\n";
  EXPECT_THAT(Found(copy + If("c", 2), Block(1, kWriteV) + Block(2, read)), IsEmpty());
  EXPECT_THAT(Found(copy + read, Block(1, kWriteV)), ElementsAre("u by 2"));
}

TEST(UnguardedReads, BufferHasTheValuesOfItsParts) {
  EXPECT_THAT(Found(absl::StrCat("FusedOutput=[fused], Output=[v] = coalesce_tensor(Input=[v]) "
                                 "{dtype=5}\n",
                                 If("c", 1), "Out=[fused] = relu(X=[fused])\n"),
                    Block(1, kWriteV)),
              ElementsAre("v by 2"));
}

TEST(UnguardedReads, BufferIsThereWhereAnOpHasMadeIt) {
  const std::string make =
      "FusedOutput=[fused], Output=[w] = coalesce_tensor(Input=[w]) {dtype=5, copy_data=true}\n";
  const std::string use = "Out=[fused] = relu(X=[fused])\n";
  const std::string run_both = absl::StrCat(If("c", 1), If("d", 2));
  EXPECT_THAT(Found(run_both, Block(1, make + use) + Block(2, use)), ElementsAre("fused by 4"));
  EXPECT_THAT(Found(run_both, Block(1, make + use) + Block(2, make + use)), IsEmpty());
  EXPECT_THAT(Found(make + run_both, Block(1, use) + Block(2, use)), IsEmpty());
}

}  // namespace
}  // namespace weft
