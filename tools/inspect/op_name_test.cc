#include "tools/inspect/op_name.h"

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/all_ops.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

Program TwoBlocks() {
  return *ParseProgramText(
      testing::BlockText("    Out=[y] = relu(X=[x]) role=forward {}\n"
                         "    Out=[] = conditional_block() role=forward {sub_block=block(1)}\n",
                         "  block 1 parent=0 {\n    Out=[z] = tanh(X=[y]) role=forward {}\n  }\n"));
}

TEST(FindNamedOpTest, ReadsTheNamesOfAllOps) {
  const Program program = TwoBlocks();
  for (const Op& op : AllOps(program)) {
    EXPECT_EQ(FindNamedOp(program, op.DebugName()), op.id());
  }
}

TEST(FindNamedOpTest, FindsTheFirstOfCombinedOps) {
  const Program program = TwoBlocks();
  EXPECT_EQ(FindNamedOp(program, "op 0 (relu) with op 1 (conditional_block)"),
            program.block(0).ops()[0]);
}

TEST(FindNamedOpTest, OtherTextAndOtherOpsAreNotFound) {
  const Program program = TwoBlocks();
  for (const char* name :
       {"", "the step", "op", "op 0", "op 0 (tanh)", "op 2 (relu)", "op 99999999999 (relu)",
        "block 2, op 0 (tanh)", "block 1 op 0 (tanh)", "block 1, op 0 (relu)", "op 0 (relu"}) {
    EXPECT_FALSE(FindNamedOp(program, name).valid()) << name;
  }
}

}  // namespace
}  // namespace weft
