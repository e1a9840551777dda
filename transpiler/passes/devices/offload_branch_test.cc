#include "transpiler/passes/devices/offload_branch.h"

#include <string>

#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/testing/message_text.h"

namespace weft::testing {
namespace {

class OffloadBranchTest : public ::testing::Test {
 protected:
  const Program program_ = CompactProgram(R"(
    var c : bool[1] need_check_feed
    var x : fp32[2, 2] need_check_feed
    var w : fp32[2, 2] parameter persistable
    var lr, twice : fp32[1] persistable
    Out=[w], Scope=[] = conditional_block(Cond=[c], Input=[w, x, lr]) {sub_block=block(1), is_scalar_condition=true}
  block 1:
    var inner : fp32[2, 2]
    Out=[twice] = scale(X=[lr]) {scale=2.0}
    Out=[inner] = relu(X=[x])
    ParamOut=[w] = sgd(Param=[w], Grad=[inner], LearningRate=[twice]) role=optimize
  )");
  OffloadBranch branch_{program_.op(program_.block(0).ops()[0])};
};

TEST_F(OffloadBranchTest, OtherOpsThatNameAVariableAreFound) {
  const Op update = program_.op(program_.block(1).ops()[2]);
  EXPECT_EQ(branch_.WhoElseNames("w", update), "");
  EXPECT_EQ(branch_.WhoElseNames("inner", update), "block 1, op 1 (relu)");
  EXPECT_EQ(branch_.WhoElseNames("nobody", update), "");
}

TEST_F(OffloadBranchTest, ValuesOfTheBranchAreUnknownBesideIt) {
  EXPECT_EQ(branch_.WhyUnknown("lr"), "");
  EXPECT_EQ(branch_.WhyUnknown("twice"), "block 1, op 0 (scale) computes in the branch");
  EXPECT_EQ(branch_.WhyUnknown("inner"), "is a variable of the branch");
}

TEST_F(OffloadBranchTest, ArgumentsAreReplacedLeftOutAndAdded) {
  branch_.Replace("w", "w@DELTA");
  branch_.Replace("lr", "");
  branch_.AddInput("one");
  branch_.AddInput("one");
  branch_.AddInput("x");
  pb::ProgramDesc program;
  *program.add_blocks()->add_ops() = branch_.op().ToProto();
  branch_.Apply(program.mutable_blocks(0)->mutable_ops(0));
  const std::string text = MessageText(program);
  EXPECT_THAT(text, HasSubstr("Out=[w@DELTA]"));
  EXPECT_THAT(text, HasSubstr("Input=[w@DELTA, x, one]"));
  EXPECT_THAT(text, HasSubstr("Cond=[c]"));
}

}  // namespace
}  // namespace weft::testing
