#include "transpiler/passes/support/op_queries.h"

#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

TEST(OpQueries, UnregisteredOpHasNoTrait) {
  const Program program = CompactProgram(R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr]) role=optimize
    Out=[y] = my_sgd(X=[w])
  )");
  EXPECT_TRUE(HasTrait(program.op(program.block(0).ops()[0]), Trait::kOptimizer));
  EXPECT_FALSE(HasTrait(program.op(program.block(0).ops()[1]), Trait::kOptimizer));
}

TEST(OpQueries, TypeIsThatOfTheVariableWhichTheBlockSees) {
  const Program program = CompactProgram(R"(
    var c : bool[1] need_check_feed
    var a, rows : fp32[2]
    var r : selected_rows<fp16[3, 2]>
    conditional_block(Cond=[c]) {sub_block=block(1)}
    block 1:
    var a : fp64[4]
    Out=[a] = relu(X=[a])
  )");
  const Symbol a = program.FindSymbol("a"), rows = program.FindSymbol("rows");
  EXPECT_EQ(DeclaredType(program, a)->dtype, DType::kFloat32);
  EXPECT_EQ(DeclaredType(program, a, 1)->dtype, DType::kFloat64);
  EXPECT_EQ(DeclaredType(program, rows, 1)->dtype, DType::kFloat32);
  EXPECT_FALSE(DeclaredType(program, program.FindSymbol("none")).has_value());
  EXPECT_TRUE(IsRows(program, program.FindSymbol("r"), 1));
  EXPECT_FALSE(IsRows(program, rows));
  EXPECT_TRUE(IsHalf(DeclaredType(program, program.FindSymbol("r"))->dtype));
}

}  // namespace
}  // namespace weft::testing
