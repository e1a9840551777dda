#include "ops/analysis/core/block_names.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Block 2 is the gradient of block 1, block 3 is in block 2.
TEST(ResolveArgumentTest, GradientBlocksSeeVariablesOfTheForwardBlock) {
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

absl::StatusOr<BlockGradientNames> NamesOf(const std::string& attrs) {
  const Program program = testing::BlockProgram(
      "    X@GRAD=[dw] = while_grad(X=[w@SIM, b], Out=[h], Out@GRAD=[h@GRAD@SIM], "
      "StepScopes=[scope]) {original_output_grad=strings[\"h@GRAD\"], sub_block=block(1)" +
          attrs + "}\n",
      "  block 1 parent=0 {\n  }\n");
  return BlockGradientNames::Of(program.op(program.block(0).ops()[0]));
}

TEST(BlockGradientNamesTest, GradientsAreCalledAfterOriginalNames) {
  WEFT_ASSERT_OK_AND_ASSIGN(const BlockGradientNames names,
                            NamesOf(", original_names=strings[\"w@SIM\", \"w\"]"));
  EXPECT_THAT(names.inputs(),
              ElementsAre(Pair("Out", ElementsAre("h")), Pair("X", ElementsAre("w", "b"))));
  EXPECT_EQ(names.Original("w@SIM"), "w");
  for (const char* inside : {"w@GRAD", "b@GRAD", "h@GRAD"}) {
    EXPECT_TRUE(names.IsInside(inside)) << inside;
  }
  for (const char* other : {"w", "w@SIM@GRAD", "h@GRAD@SIM", "scope@GRAD"}) {
    EXPECT_FALSE(names.IsInside(other)) << other;
  }
}

TEST(BlockGradientNamesTest, WithoutTheAttributeNamesAreThoseOfInputs) {
  WEFT_ASSERT_OK_AND_ASSIGN(const BlockGradientNames names, NamesOf(""));
  EXPECT_THAT(names.inputs(), ElementsAre(Pair("Out", _), Pair("X", ElementsAre("w@SIM", "b"))));
  EXPECT_TRUE(names.IsInside("w@SIM@GRAD"));
}

TEST(BlockGradientNamesTest, RefusesNamesThatAreNoPairs) {
  EXPECT_THAT(std::string(NamesOf(", original_names=strings[\"w\"]").status().message()),
              HasSubstr("expected pairs of new and old names, found 1 names"));
}

}  // namespace
}  // namespace weft
