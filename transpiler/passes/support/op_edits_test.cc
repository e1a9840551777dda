#include "transpiler/passes/support/op_edits.h"

#include <string>

#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/testing/message_text.h"

namespace weft::testing {
namespace {

constexpr char kOp[] = "Out=[y] = scale(X=[x]) {bias=1.0, scale=2.0}";

class OpEdits : public ::testing::Test {
 protected:
  // The text of the op after the edits.
  std::string Text() {
    pb::ProgramDesc program;
    *program.add_blocks()->add_ops() = op_;
    const std::string text = MessageText(program);
    const size_t begin = text.find("Out="), end = text.find('\n', begin);
    return text.substr(begin, end - begin);
  }

  const Program program_ = CompactProgram(kOp);
  pb::OpDesc op_ = program_.op(program_.block(0).ops()[0]).ToProto();
};

TEST_F(OpEdits, SlotsAreReplacedOrAdded) {
  SetInput(&op_, "X", {"a", "b"});
  SetInput(&op_, "ScaleTensor", {"s"});
  SetOutput(&op_, "Out", {});
  EXPECT_THAT(Text(), StartsWith("Out=[] = scale(X=[a, b], ScaleTensor=[s])"));
}

TEST_F(OpEdits, AttributesAreReplacedOrAddedAtTheEnd) {
  SetFloatAttr(&op_, "scale", 0.5F);
  SetIntAttr(&op_, "bias_after", 3);
  SetBoolAttr(&op_, "a_flag", true);
  SetStringAttr(&op_, "name", "n");
  SetStringsAttr(&op_, "names", {"a", "b"});
  SetStringsAttr(&op_, "names", {"c"});
  EXPECT_THAT(Text(),
              HasSubstr(R"({bias=1.0, scale=0.5, op_role, bias_after=3, a_flag=true, name="n", )"
                        R"(names=strings["c"]})"));
}

TEST_F(OpEdits, AddedAttributesKeepTheOrderOfNames) {
  AddAttr("nranks", 4, &op_);
  AddAttr("a", true, &op_);
  AddAttr("z", std::string("last"), &op_);
  EXPECT_THAT(Text(), HasSubstr(R"({a=true, bias=1.0, nranks=4, scale=2.0, op_role, z="last"})"));
}

TEST_F(OpEdits, HostIsADevice) {
  SetOnHost(&op_);
  SetOnHost(&op_);
  EXPECT_THAT(Text(), HasSubstr(R"(scale=2.0, op_role, op_device="cpu"})"));
}

}  // namespace
}  // namespace weft::testing
