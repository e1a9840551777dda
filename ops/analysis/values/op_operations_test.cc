#include "ops/analysis/values/op_operations.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

class OpOperationsTest : public ::testing::Test {
 protected:
  // The operations of the ops of the root block of a program with these ops.
  std::vector<OperationId> Of(const std::string& ops, const std::string& blocks = "") {
    const Program program =
        testing::BlockProgram("    var a : fp32[4]\n    var b : fp32[4]\n" + ops, blocks);
    OpOperations operations(program, &table_);
    std::vector<OperationId> all;
    for (OpId id : program.block(0).ops()) all.push_back(operations.Of(program.op(id)));
    return all;
  }

  ExpressionTable table_;
};

TEST_F(OpOperationsTest, AttributesTellOpsApart) {
  const auto ops =
      Of("    Out=[b] = scale(X=[a]) {scale=2.0}\n"
         "    Out=[b] = scale(X=[a]) {scale=3.0}\n"
         "    Out=[b] = scale(X=[b]) {scale=2.0}\n");
  EXPECT_NE(ops[0], ops[1]);
  EXPECT_EQ(ops[0], ops[2]);  // of other variables
}

TEST_F(OpOperationsTest, ADefaultMayBeLeftOut) {
  const auto ops =
      Of("    Out=[b] = scale(X=[a]) {scale=2.0}\n"
         "    Out=[b] = scale(X=[a]) {scale=2.0, bias=0.0}\n"
         "    Out=[b] = scale(X=[a]) {bias=1.0, scale=2.0}\n"
         "    Out=[b] = scale(X=[a]) {scale=2.0, bias=1.0}\n");
  EXPECT_EQ(ops[0], ops[1]);
  EXPECT_NE(ops[0], ops[2]);
  EXPECT_EQ(ops[2], ops[3]);
}

TEST_F(OpOperationsTest, BookkeepingAndRepresentationDoNotCount) {
  const auto ops =
      Of("    Out=[b] = scale(X=[a]) role=backward {scale=2.0, op_namescope=\"/x/\", nranks=4}\n"
         "    Out=[b] = scale(X=[a]) role=optimize {scale=2.0}\n");
  EXPECT_EQ(ops[0], ops[1]);
}

TEST_F(OpOperationsTest, ABatchNormGradientOfAnotherKindIsAnotherOp) {
  const auto gradient = [&](const std::string& norm, const std::string& copy) {
    return Of("    Y=[a], SavedMean=[b] = " + norm + "(X=[a])\n" + copy +
              "    X@GRAD=[a] = batch_norm_grad(X=[a], SavedMean=[b])\n")
        .back();
  };
  const OperationId right = gradient("batch_norm", "");
  EXPECT_NE(right, gradient("sync_batch_norm", ""));
  // The mean is a copy, or something else.
  const std::string copy = "    Out=[b] = assign(X=[b])\n";
  EXPECT_EQ(right, gradient("batch_norm", copy));
  EXPECT_NE(right, gradient("sync_batch_norm", copy));
}

TEST_F(OpOperationsTest, SlotsTellOpsApartButNotTheirOrder) {
  const auto ops =
      Of("    Out=[b] = elementwise_sub(X=[a], Y=[b])\n"
         "    Out=[b] = elementwise_sub(Y=[a], X=[b])\n"
         "    Out=[b] = sum(X=[a, b])\n"
         "    Out=[b] = sum(X=[a, b, a])\n");
  EXPECT_EQ(ops[0], ops[1]);
  EXPECT_NE(ops[2], ops[3]);
}

TEST_F(OpOperationsTest, AllAttributesOfAnUnknownOpCount) {
  const auto ops =
      Of("    Out=[b] = an_op_of_a_fork(X=[a]) {is_nice=true}\n"
         "    Out=[b] = an_op_of_a_fork(X=[a]) {is_nice=false}\n");
  EXPECT_NE(ops[0], ops[1]);
}

TEST_F(OpOperationsTest, BlocksCountByWhatTheirOpsDo) {
  const auto loop = [](const std::string& scale) {
    return "  block 1 parent=0 {\n    Out=[b] = scale(X=[b]) {scale=" + scale + "}\n  }\n";
  };
  const std::string op = "    Out=[b] = while(X=[b], Condition=[a]) {sub_block=block(1)}\n";
  EXPECT_EQ(Of(op, loop("2.0")), Of(op, loop("2.0")));
  EXPECT_NE(Of(op, loop("2.0")), Of(op, loop("3.0")));
}

// What multiplies the gradient of an op of the root block is a factor of the gradient.
TEST_F(OpOperationsTest, FactorsOfGradientsCountInBlocks) {
  const auto update = [](const std::string& factor) {
    return "    ParamOut=[b], VelocityOut=[b] = momentum(Param=[b], Grad=[a], Velocity=[b], "
           "LearningRate=[a]) {mu=0.9, rescale_grad=" +
           factor + "}\n";
  };
  EXPECT_EQ(Of(update("1.0")), Of(update("0.125")));
  const auto loop = [&](const std::string& factor) {
    return "  block 1 parent=0 {\n" + update(factor) + "  }\n";
  };
  const std::string op = "    Out=[b] = while(X=[b], Condition=[a]) {sub_block=block(1)}\n";
  EXPECT_EQ(Of(op, loop("0.125")), Of(op, loop("0.125")));
  EXPECT_NE(Of(op, loop("1.0")), Of(op, loop("0.125")));
}

TEST_F(OpOperationsTest, BlocksCountByWhatTheyDeclare) {
  const auto loop = [](const std::string& vars) {
    return "  block 1 parent=0 {\n" + vars + "    Out=[c] = scale(X=[b]) {scale=2.0}\n  }\n";
  };
  const std::string op = "    Out=[b] = while(X=[b], Condition=[a]) {sub_block=block(1)}\n";
  const auto plain = Of(op, loop("    var c : fp32[4]\n"));
  EXPECT_EQ(plain, Of(op, loop("    var c : fp32[4]\n")));
  // A variable that no op uses does not count.
  EXPECT_EQ(plain, Of(op, loop("    var c : fp32[4]\n    var d : fp32[4]\n")));
  EXPECT_NE(plain, Of(op, loop("    var c : fp32[4] persistable\n")));
  EXPECT_NE(plain, Of(op, loop("    var c : fp64[4]\n")));
  EXPECT_NE(plain, Of(op, loop("    var c : fp32[2, 2]\n")));
  // It hides that of the block around.
  EXPECT_NE(plain, Of(op, loop("    var b : fp32[4]\n    var c : fp32[4]\n")));
}

// A pass may rename an input, in the op and in its block.
TEST_F(OpOperationsTest, InputsOfBlocksCountByTheirPlaces) {
  const auto loop = [&](const std::string& first, const std::string& read,
                        const std::string& written) {
    return Of("    var c : fp32[4]\n    var d : bool[1]\n    Out=[b] = while(X=[" + first +
                  ", b], Condition=[d]) {sub_block=block(1)}\n",
              "  block 1 parent=0 {\n    Out=[" + written + "] = scale(X=[" + read + "])\n  }\n");
  };
  EXPECT_EQ(loop("a", "a", "b"), loop("c", "c", "b"));
  EXPECT_NE(loop("a", "a", "b"), loop("a", "b", "b"));
  EXPECT_NE(loop("a", "a", "b"), loop("c", "a", "b"));  // a is no input
  EXPECT_NE(loop("a", "b", "b"), loop("a", "b", "a"));
}

TEST_F(OpOperationsTest, OrderOfSlotsInBlocksDoesNotCount) {
  const auto loop = [&](const std::string& op) {
    return Of(
        "    var d : bool[1]\n    Out=[b] = while(X=[a, b], Condition=[d]) "
        "{sub_block=block(1)}\n",
        "  block 1 parent=0 {\n    " + op + "\n  }\n");
  };
  const auto in_order = loop("Out=[b] = elementwise_sub(X=[a], Y=[b])");
  EXPECT_EQ(in_order, loop("Out=[b] = elementwise_sub(Y=[b], X=[a])"));
  EXPECT_NE(in_order, loop("Out=[b] = elementwise_sub(X=[b], Y=[a])"));
}

// The block makes a@GRAD, whatever a is called now.
TEST_F(OpOperationsTest, GradientsInBlocksCountByOriginalNames) {
  const auto gradient = [&](const std::string& input, const std::string& made,
                            const std::string& attrs = "") {
    return Of(
        "    var a@GRAD : fp32[4]\n    var c@GRAD : fp32[4]\n    var c : fp32[4]\n"
        "    X@GRAD=[b] = while_grad(X=[" +
            input +
            "], Out@GRAD=[], StepScopes=[b]) "
            "{original_output_grad=strings[], sub_block=block(1)" +
            attrs + "}\n",
        "  block 1 parent=0 {\n    Out=[" + made + "] = scale(X=[" + input + "])\n  }\n");
  };
  const auto original = gradient("a", "a@GRAD");
  EXPECT_EQ(original, gradient("c", "a@GRAD", ", original_names=strings[\"c\", \"a\"]"));
  EXPECT_NE(original, gradient("c", "a@GRAD"));  // a gradient of zero
  EXPECT_NE(original, gradient("c", "c@GRAD", ", original_names=strings[\"c\", \"a\"]"));
  EXPECT_NE(original, gradient("c", "a@GRAD", ", original_names=strings[\"c\"]"));
}

TEST_F(OpOperationsTest, OutputsHaveTheirPlacesWhetherAskedForOrNot) {
  const Program program = testing::BlockProgram(
      "    var a : fp32[4]\n    var b : fp32[4]\n    var c : fp32[4]\n"
      "    Y@GRAD=[b] = elementwise_add_grad(X=[a], Y=[a], Out@GRAD=[a])\n"
      "    X@GRAD=[c], Y@GRAD=[b] = elementwise_add_grad(X=[a], Y=[a], Out@GRAD=[a])\n");
  OpOperations operations(program, &table_);
  const Op one = program.op(program.block(0).ops()[0]);
  const Op both = program.op(program.block(0).ops()[1]);
  EXPECT_EQ(operations.Of(one), operations.Of(both));
  EXPECT_EQ(operations.NumOutputs(one), operations.NumOutputs(both));
  EXPECT_EQ(operations.OutputIndex(one, 0), operations.OutputIndex(both, 1));
}

TEST_F(OpOperationsTest, DifferenceShowsTheAttributesThatDifferAndDefaults) {
  const auto ops =
      Of("    Out=[b] = scale(X=[a]) {scale=2.0, bias_after_scale=true}\n"
         "    Out=[b] = scale(X=[a]) {scale=3.0, bias=1.0, bias_after_scale=true}\n");
  const ExprId a = table_.Initial("a");
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Call(ops[0], {a}), table_.Call(ops[1], {a}));
  EXPECT_EQ(difference.a, "scale{bias=0.0, scale=2.0}(a)");
  EXPECT_EQ(difference.b, "scale{bias=1.0, scale=3.0}(a)");
}

TEST_F(OpOperationsTest, DifferenceOfUnregisteredOpsShowsTheirAttributes) {
  const auto ops =
      Of("    Out=[b] = my_op(X=[a]) {level=2}\n"
         "    Out=[b] = my_op(X=[a])\n");
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Call(ops[0], {}), table_.Call(ops[1], {}));
  EXPECT_EQ(difference.a, "my_op{level=2}");
  EXPECT_EQ(difference.b, "my_op{level=none}");
}

TEST_F(OpOperationsTest, DrawsAreOperationsByNumberAndAttributes) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var a : fp32[4]
    Out=[a] = uniform_random() {shape=longs[4], dtype=5, min=-1.0, max=1.0}
    Out=[a] = uniform_random() {shape=longs[4], dtype=5, min=-2.0, max=1.0}
  }
})"));
  OpOperations operations(program, &table_);
  const Op one = program.op(program.block(0).ops()[0]);
  const Op other = program.op(program.block(0).ops()[1]);
  EXPECT_EQ(operations.Draw(one, 0), operations.Draw(one, 0));
  EXPECT_NE(operations.Draw(one, 0), operations.Draw(one, 1));
  const ExpressionTable::Difference difference = table_.FindDifference(
      table_.Call(operations.Draw(one, 0), {}), table_.Call(operations.Draw(other, 0), {}));
  EXPECT_EQ(difference.a, "uniform_random[0]{min=-1.0}");
  EXPECT_EQ(difference.b, "uniform_random[0]{min=-2.0}");
}

}  // namespace
}  // namespace weft
