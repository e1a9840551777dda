#include "transpiler/verify/arguments.h"

#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

TEST(Arguments, AreNamedByDirectionAndSlot) {
  const Program program = testing::BlockProgram(
      "    Out=[y], XShape=[s] = reshape2(X=[x], ShapeTensor=[a, b]) {shape=ints[]}\n");
  const Op op = program.op(program.block(0).ops()[0]);
  const auto slot_of = [&](const char* name) {
    for (size_t i = 0; i < op.args().size(); ++i) {
      if (program.name(op.args()[i]) == name) return SlotOfArgument(op, i);
    }
    return std::string();
  };
  EXPECT_EQ(slot_of("x"), "input X");
  EXPECT_EQ(slot_of("b"), "input ShapeTensor");
  EXPECT_EQ(slot_of("s"), "output XShape");
}

// Block 2 is the gradient of block 1, block 3 is in block 2.
TEST(Arguments, OfGradientBlocksMayBeVariablesOfTheForwardBlock) {
  const Program program = testing::BlockProgram("    var x : fp32[1]\n",
                                                "  block 1 parent=0 {\n    var h : fp32[1]\n  }\n"
                                                "  block 2 parent=0 forward=1 {\n  }\n"
                                                "  block 3 parent=2 {\n  }\n");
  const Symbol x = program.FindSymbol("x"), h = program.FindSymbol("h");
  EXPECT_FALSE(ResolveArgument(program, 0, h).valid());
  for (int block : {1, 2, 3}) {
    EXPECT_EQ(program.var(ResolveArgument(program, block, h)).block(), 1) << block;
    EXPECT_EQ(program.var(ResolveArgument(program, block, x)).block(), 0) << block;
  }
}

}  // namespace
}  // namespace weft
