#include "ops/analysis/values/linear_blocks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

// Of a loop's gradient whose block has the given ops.
bool IsLinear(const std::string& ops) {
  const Program program = testing::BlockProgram(
      "    X@GRAD=[h@GRAD] = while_grad(X=[h, x], Out@GRAD=[outside@GRAD], StepScopes=[rounds]) "
      "{original_output_grad=strings[\"h@GRAD\"], sub_block=block(1)}\n",
      absl::StrCat("  block 1 parent=0 {\n", ops, "  }\n"));
  return FollowGradients(program.op(program.block(0).ops()[0]), SignatureTable(program))
      .has_value();
}

TEST(LinearBlocksTest, GradientsOfOpsAndSumsAreLinear) {
  EXPECT_TRUE(
      IsLinear("    X@GRAD=[a@GRAD], Y@GRAD=[] = elementwise_mul_grad(X=[h], Y=[x], "
               "Out@GRAD=[h@GRAD])\n"
               "    Out=[i] = increment(X=[i]) {step=-1.0}\n"
               "    Out=[b] = tanh(X=[x])\n"
               "    Out=[c] = elementwise_mul(X=[a@GRAD], Y=[b])\n"
               "    Out=[h@GRAD] = sum(X=[a@GRAD, c])\n"));
}

TEST(LinearBlocksTest, FunctionsOfAGradientCount) {
  EXPECT_FALSE(
      IsLinear("    Out=[a] = scale(X=[h@GRAD]) {scale=2.0}\n    Out=[b] = clip(X=[a])\n"));
  EXPECT_FALSE(IsLinear("    Out=[a] = scale(X=[h@GRAD]) {scale=2.0, bias=1.0}\n"));
  EXPECT_FALSE(IsLinear("    Out=[a] = elementwise_mul(X=[h@GRAD], Y=[h@GRAD])\n"));
  EXPECT_FALSE(IsLinear("    X@GRAD=[a] = mul_grad(X=[x], Y=[h@GRAD], Out@GRAD=[h@GRAD])\n"));
  EXPECT_FALSE(IsLinear("    Out=[a] = elementwise_add(X=[h@GRAD], Y=[x])\n"));
  EXPECT_FALSE(IsLinear("    Out=[a] = where(Condition=[m], X=[h@GRAD], Y=[x])\n"));
  EXPECT_TRUE(IsLinear("    Out=[a] = where(Condition=[m], X=[h@GRAD], Y=[h@GRAD])\n"));
}

// Whatever the name of a gradient.
TEST(LinearBlocksTest, GradientsByTheirSlotCount) {
  const Program program = testing::BlockProgram(
      "    Input@GRAD=[a@GRAD] = conditional_block_grad(Cond=[due], Input=[a], Out@GRAD=[dy]) "
      "{sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    Out=[a@GRAD] = clip(X=[dy])\n  }\n");
  EXPECT_FALSE(
      FollowGradients(program.op(program.block(0).ops()[0]), SignatureTable(program)).has_value());
}

TEST(LinearBlocksTest, WhatIsMadeOfGradientsIsNamed) {
  const Program program = testing::BlockProgram(
      "    X@GRAD=[h@GRAD] = while_grad(X=[h, x], Out@GRAD=[outside@GRAD], StepScopes=[rounds]) "
      "{original_output_grad=strings[\"h@GRAD\"], sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    Out=[i] = increment(X=[i]) {step=-1.0}\n"
      "    Out=[a] = scale(X=[h@GRAD]) {scale=2.0}\n  }\n");
  const auto made = FollowGradients(program.op(program.block(0).ops()[0]), SignatureTable(program));
  ASSERT_TRUE(made.has_value());
  for (const char* name : {"outside@GRAD", "h@GRAD", "a"}) {
    EXPECT_TRUE(made->contains(program.FindSymbol(name))) << name;
  }
  for (const char* name : {"h", "x", "i"}) {
    EXPECT_FALSE(made->contains(program.FindSymbol(name))) << name;
  }
}

// The clip stands before the op whose result it takes in the next iteration.
TEST(LinearBlocksTest, ValuesCarriedBetweenIterationsCount) {
  EXPECT_FALSE(IsLinear("    Out=[b] = clip(X=[a])\n    Out=[a] = assign(X=[h@GRAD])\n"));
}

}  // namespace
}  // namespace weft
