#include "ops/analysis/testing/compact_program.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

TEST(CompactProgram, UndeclaredVariablesAreDeclaredByTheirUse) {
  EXPECT_EQ(CanonicalText(CompactProgram(R"(
    var x : fp32[-1, 4] need_check_feed
    Out=[y] = mul(X=[x], Y=[w])
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize {mu=0.5}
  )")
                              .ToProto()),
            R"(program version=2006002 {
  block 0 parent=-1 {
    var g : fp32[2, 2] need_check_feed
    var lr : fp32[1] persistable
    var v : fp32[2, 2] persistable
    var w : fp32[2, 2] parameter persistable
    var w@GRAD : fp32[2, 2]
    var x : fp32[-1, 4] need_check_feed
    var y : fp32[2, 2]
    Out=[y] = mul(X=[x], Y=[w]) role=forward
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[g], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Grad=[w@GRAD], LearningRate=[lr], Param=[w], Velocity=[v]) role=optimize {mu=0.5}
  }
}
)");
}

TEST(CompactProgram, OpsInferTheTypesOfWhatTheyWrite) {
  EXPECT_EQ(CanonicalText(CompactProgram(R"(
    var a, b : int64[-1, 3] need_check_feed
    Out=[sum] = elementwise_add(X=[a], Y=[b])
    Out=[due] = equal(X=[sum], Y=[b])
    Scope=[scope] = conditional_block(Cond=[due]) {sub_block=block(1)}
    Out=[g] = my_op(X=[sum])
    Out=[sum@GRAD] = my_op(X=[sum])
    block 1:
    Out=[n] = cast(X=[sum]) {in_dtype=3, out_dtype=5}
  )")
                              .ToProto()),
            R"(program version=2006002 {
  block 0 parent=-1 {
    var a : int64[-1, 3] need_check_feed
    var b : int64[-1, 3] need_check_feed
    var due : bool[-1, 3]
    var g : fp32[2, 2]
    var n : fp32[-1, 3]
    var scope : step_scopes
    var sum : int64[-1, 3]
    var sum@GRAD : int64[-1, 3]
    Out=[sum] = elementwise_add(X=[a], Y=[b]) role=forward
    Out=[due] = equal(X=[sum], Y=[b]) role=forward
    Scope=[scope] = conditional_block(Cond=[due]) role=forward {sub_block=block(1)}
    Out=[g] = my_op(X=[sum]) role=forward
    Out=[sum@GRAD] = my_op(X=[sum]) role=forward
  }
  block 1 parent=0 {
    Out=[n] = cast(X=[sum]) role=forward {in_dtype=3, out_dtype=5}
  }
}
)");
}

TEST(CompactProgram, LineOfABlockBeginsIt) {
  const Program program = CompactProgram(R"(
    Out=[y] = conditional_block(Cond=[c], Input=[x]) {sub_block=block(1)}
    block 1:
    Out=[y] = conditional_block(Cond=[c], Input=[x]) {sub_block=block(2)}
    block 2 parent=1:
    Out=[y] = relu(X=[x])
  )");
  ASSERT_EQ(program.num_blocks(), 3);
  EXPECT_EQ(program.block(1).parent_idx(), 0);
  EXPECT_EQ(program.block(2).parent_idx(), 1);
  EXPECT_EQ(program.block(2).ops().size(), 1);
}

TEST(CompactProgram, DeclarationsOfAnotherProgramAreTakenOverWhereTheTextHasNone) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const pb::ProgramDesc declarations,
      ParseCompactProgram("var x : fp32[7]\nvar z : fp32[8]\nOut=[z] = relu(X=[x])"));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const pb::ProgramDesc program,
      ParseCompactProgram("var x : fp32[9]\nOut=[y] = relu(X=[x])", declarations));
  EXPECT_EQ(CanonicalText(program), R"(program version=2006002 {
  block 0 parent=-1 {
    var x : fp32[9]
    var z : fp32[8]
    Out=[y] = relu(X=[x]) role=forward
  }
}
)");
}

TEST(CompactProgram, CanonicalTextOmitsDefaults) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const pb::ProgramDesc program,
      ParseCompactProgram(
          "Out=[x] = scale(ScaleTensor=[], X=[x]) {scale=1.0, bias=2.0, op_device=\"cpu\"}"));
  EXPECT_THAT(CanonicalText(program), HasSubstr("\n    Out=[x] = scale(X=[x]) role=forward "
                                                "{bias=2.0}\n"));
}

TEST(CompactProgram, WrongTextIsAnError) {
  EXPECT_THAT(ParseCompactProgram("Out=[y] = relu(X=x)").status(), IsInvalidArgument("expected"));
}

}  // namespace
}  // namespace weft::testing
