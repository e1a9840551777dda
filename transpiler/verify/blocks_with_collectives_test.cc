#include "transpiler/verify/blocks_with_collectives.h"

#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::weft::testing::BlockProgram;

constexpr char kReduce[] = "    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}\n";
constexpr char kRun1[] = "    Out=[w] = while(X=[w]) {sub_block=block(1)}\n";
constexpr char kNested[] =
    "  block 1 parent=0 {\n    Out=[w] = while(X=[w]) {sub_block=block(2)}\n  }\n"
    "  block 2 parent=1 {\n    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}\n  }\n";

TEST(BlocksWithCollectivesTest, RootAlone) {
  const Program program = BlockProgram(kReduce);
  const BlocksWithCollectives blocks(program);
  EXPECT_TRUE(blocks.Has(0));
  EXPECT_FALSE(blocks.AnyInner());
  EXPECT_FALSE(blocks.RunBy(program.op(program.block(0).ops()[0])));
}

TEST(BlocksWithCollectivesTest, OuterBlocksHaveThoseOfInnerBlocks) {
  const Program program = BlockProgram(kRun1, kNested);
  const BlocksWithCollectives blocks(program);
  for (int block : {0, 1, 2}) EXPECT_TRUE(blocks.Has(block)) << block;
  EXPECT_TRUE(blocks.AnyInner());
  EXPECT_TRUE(blocks.RunBy(program.op(program.block(0).ops()[0])));
}

TEST(BlocksWithCollectivesTest, OthersHaveNone) {
  const Program program =
      BlockProgram(kRun1, "  block 1 parent=0 {\n    Out=[w] = relu(X=[w])\n  }\n");
  const BlocksWithCollectives blocks(program);
  EXPECT_FALSE(blocks.Has(0));
  EXPECT_FALSE(blocks.Has(1));
  EXPECT_FALSE(blocks.AnyInner());
}

}  // namespace
}  // namespace weft
