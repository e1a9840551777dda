#include "transpiler/verifier/structure/arguments.h"

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

}  // namespace
}  // namespace weft
