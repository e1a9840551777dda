#include "transpiler/passes/devices/accumulations.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kAdd[] = "    Out=[merged] = elementwise_add(X=[merged], Y=[g])\n";

std::string If(const std::string& reads, const std::string& writes, int block = 1) {
  return absl::StrCat("    Out=[", writes,
                      "], Scope=[scope] = conditional_block(Cond=[due], Input=[", reads,
                      "]) {is_scalar_condition=true, sub_block=block(", block, ")}\n");
}

constexpr char kUpdate[] =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[merged], LearningRate=[lr])\n"
    "    Out=[merged] = fill_constant() {shape=longs[4], dtype=5, value=0.0}\n";

// The positions of those for the last op of the root block.
std::vector<int> Find(const std::string& ops, const std::string& block = kUpdate,
                      const std::string& more = "") {
  const absl::StatusOr<Program> program = ParseProgramText(
      absl::StrCat(R"(program {
  block 0 parent=-1 {
    var due : bool[1] need_check_feed
    var scope : step_scopes
    var g : fp32[4]
    var h : fp32[4]
    var f : fp32[4]
    var lr : fp32[1] persistable
    var w : fp32[4] parameter persistable
    var merged : fp32[4] persistable
)",
                   ops, "  }\n  block 1 parent=0 {\n", block, "  }\n", more, "}\n"));
  WEFT_EXPECT_OK(program.status());
  if (!program.ok()) return {-1};
  std::vector<int> positions;
  for (OpId id : Accumulations(*program).Of(program->block(0).ops().back())) {
    positions.push_back(static_cast<int>(program->op(id).position()));
  }
  return positions;
}

TEST(Accumulations, AnOpThatAddsForTheBranchIsFound) {
  EXPECT_THAT(Find(absl::StrCat(kAdd, If("w, merged, lr", "w, merged"))), ElementsAre(0));
  EXPECT_THAT(Find(absl::StrCat("    Out=[merged] = sum(X=[merged, g])\n",
                                If("w, merged, lr", "w, merged"))),
              ElementsAre(0));
}

TEST(Accumulations, WhatOthersUseIsNotKeptForTheBranch) {
  EXPECT_THAT(Find(absl::StrCat(kAdd, "    Out=[h] = relu(X=[merged])\n",
                                If("w, merged, lr", "w, merged"))),
              IsEmpty());
  const std::string second = "  block 2 parent=0 {\n    Out=[h] = relu(X=[merged])\n  }\n";
  EXPECT_THAT(Find(absl::StrCat(kAdd, If("merged", "h", 2), If("w, merged, lr", "w, merged")),
                   kUpdate, second),
              IsEmpty());
}

TEST(Accumulations, OtherOpsAreNone) {
  // Three values to copy instead of two.
  EXPECT_THAT(Find(absl::StrCat("    Out=[merged] = sum(X=[merged, g, h])\n",
                                If("w, merged, lr", "w, merged"))),
              IsEmpty());
  EXPECT_THAT(Find(absl::StrCat("    Out=[merged] = elementwise_mul(X=[merged], Y=[g])\n",
                                If("w, merged, lr", "w, merged"))),
              IsEmpty());
  // Of one step.
  EXPECT_THAT(
      Find(absl::StrCat("    Out=[h] = elementwise_add(X=[h], Y=[g])\n", If("w, h, lr", "w")),
           "    ParamOut=[w] = sgd(Param=[w], Grad=[h], LearningRate=[lr])\n"),
      IsEmpty());
  EXPECT_THAT(Find(absl::StrCat("    Out=[merged] = elementwise_add(X=[merged], Y=[g]) "
                                "{op_device=\"gpu:0\"}\n",
                                If("w, merged, lr", "w, merged"))),
              IsEmpty());
}

TEST(Accumulations, ABufferOfTheRootBlockIsNotOfTheBranch) {
  EXPECT_THAT(
      Find(absl::StrCat("    FusedOutput=[f], Output=[merged] = coalesce_tensor(Input=[merged])\n",
                        kAdd, If("w, merged, lr", "w, merged"))),
      IsEmpty());
}

}  // namespace
}  // namespace weft
