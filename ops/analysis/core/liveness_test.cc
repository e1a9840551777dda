#include "ops/analysis/core/liveness.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

// out = relu(in)
ProgramBuilder& Relu(ProgramBuilder& builder, const std::string& in, const std::string& out) {
  return builder.Op("relu", {{"X", {in}}}, {{"Out", {out}}});
}

TEST(PeakMemoryTest, VariablesCountFromTheFirstOpThatNamesThemToTheLast) {
  ProgramBuilder builder;
  builder.Var("a", {10}).Var("b", {20}).Var("c", {30}).Var("d", {1}).Var("unused", {1000});
  Relu(Relu(Relu(builder, "a", "b"), "b", "c"), "c", "d");
  const Program program = builder.Build();
  const PeakMemory peak = EstimatePeakMemory(program, 1);
  EXPECT_EQ(peak.bytes, 4 * (20 + 30));
  EXPECT_EQ(peak.op, program.block(0).ops()[1]);
  EXPECT_EQ(peak.persistable_bytes, 0);
  EXPECT_EQ(peak.num_unknown, 0);
}

TEST(PeakMemoryTest, PersistableVariablesCountThroughoutAndDataFromTheBeginning) {
  ProgramBuilder builder;
  builder.Param("w", {100}).Var("a", {50}).Var("b", {1}).Var("x", {10});
  builder.last_var().set_need_check_feed(true);
  Relu(Relu(builder, "a", "b"), "x", "b");
  const PeakMemory peak = EstimatePeakMemory(builder.Build(), 1);
  EXPECT_EQ(peak.bytes, 4 * (100 + 50 + 1 + 10));
  EXPECT_EQ(peak.persistable_bytes, 400);
}

TEST(PeakMemoryTest, UnknownFirstDimensionIsTheBatchAndOthersAreNotCounted) {
  ProgramBuilder builder;
  builder.Var("a", {-1, 10}).Var("b", {-1, -1});
  const Program program = Relu(builder, "a", "b").Build();
  EXPECT_EQ(EstimatePeakMemory(program, 1).bytes, 40);
  EXPECT_EQ(EstimatePeakMemory(program, 32).bytes, 32 * 40);
  EXPECT_EQ(EstimatePeakMemory(program, 32).num_unknown, 1);
}

TEST(PeakMemoryTest, MembersOfAFusedBufferLiveTogether) {
  ProgramBuilder builder;
  builder.Var("a", {10}).Var("b", {20}).Var("fused", {1}).Var("big", {15});
  Relu(builder, "big", "a");  // fills a; b is to follow
  builder.Op("coalesce_tensor", {{"Input", {"a", "b"}}},
             {{"Output", {"a", "b"}}, {"FusedOutput", {"fused"}}});
  Relu(builder, "fused", "fused");
  EXPECT_EQ(EstimatePeakMemory(builder.Build(), 1).bytes, 4 * (10 + 20 + 15));
}

TEST(PeakMemoryTest, OpsOfSubBlocksCountWhereTheirBlockIsHeld) {
  ProgramBuilder builder;
  builder.Var("a", {10}).Var("b", {20}).Var("c", {30});
  Relu(builder, "a", "b");
  builder.Op("conditional_block", {}, {}).BlockAttr("sub_block", 1);
  Relu(builder, "c", "c");
  builder.NewBlock(0).Var("inner", {100});
  Relu(builder, "b", "inner");
  const Program program = builder.Build();
  const PeakMemory peak = EstimatePeakMemory(program, 1);
  EXPECT_EQ(peak.bytes, 4 * (20 + 100));
  EXPECT_EQ(peak.op, program.block(0).ops()[1]);
}

// The number of ways into a block grows exponentially with its depth here.
TEST(PeakMemoryTest, BlocksThatAreHeldTwiceAtEveryDepthTakeNoTime) {
  constexpr int kDepth = 100;
  ProgramBuilder builder;
  for (int depth = 0; depth < kDepth; ++depth) {
    for (int i = 0; i < 2; ++i) {
      builder.Op("conditional_block", {}, {}).BlockAttr("sub_block", depth + 1);
    }
    builder.NewBlock(depth).Var(absl::StrCat("v", depth), {1});
    Relu(builder, absl::StrCat("v", depth), absl::StrCat("v", depth));
  }
  EXPECT_EQ(EstimatePeakMemory(builder.Build(), 1).bytes, 4 * kDepth);
}

TEST(PeakMemoryTest, SumsDoNotOverflow) {
  ProgramBuilder builder;
  for (int i = 0; i < 9000; ++i) {
    const std::string name = absl::StrCat("v", i);
    builder.Var(name, {-1, int64_t{1} << 40});
    Relu(builder, name, "v0");
  }
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(EstimatePeakMemory(builder.Build(), huge).bytes, huge);
}

TEST(PeakMemoryTest, ProgramWithoutOpsTakesItsParameters) {
  const PeakMemory peak = EstimatePeakMemory(ProgramBuilder().Param("w", {3}).Build(), 1);
  EXPECT_EQ(peak.bytes, 12);
  EXPECT_FALSE(peak.op.valid());
}

}  // namespace
}  // namespace weft::testing
