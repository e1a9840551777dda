#include "proto/all_ops.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "2 relu": block and type.
template <typename Ops>
std::vector<std::string> Texts(const Ops& ops) {
  std::vector<std::string> texts;
  for (const Op& op : ops)
    texts.push_back(std::to_string(op.block()) + " " + std::string(op.type()));
  return texts;
}

// Blocks 1, 3 and 4 are empty.
Program FiveBlocks() {
  return ProgramBuilder()
      .Op("mul", {{"X", {"a"}}}, {{"Out", {"b"}}}, kRoleBackward)
      .Op("sum", {{"X", {"b"}}}, {{"Out", {"c"}}})
      .NewBlock()
      .NewBlock()
      .Op("relu", {}, {{"Out", {"inner"}}})
      .NewBlock()
      .NewBlock()
      .Build();
}

TEST(AllOpsTest, OpsOfAllBlocksAreInOrder) {
  const Program program = FiveBlocks();
  EXPECT_THAT(Texts(AllOps(program)), ElementsAre("0 mul", "0 sum", "2 relu"));
  EXPECT_THAT(Texts(InnerOps(program)), ElementsAre("2 relu"));
  EXPECT_THAT(Texts(BlockOps(program, 0)), ElementsAre("0 mul", "0 sum"));
  EXPECT_THAT(Texts(BlockOps(program, 1)), IsEmpty());
}

TEST(AllOpsTest, AnEmptyRootIsSkipped) {
  const Program program = ProgramBuilder().NewBlock().Op("relu", {}, {{"Out", {"inner"}}}).Build();
  EXPECT_THAT(Texts(AllOps(program)), ElementsAre("1 relu"));
}

TEST(AllOpsTest, ProgramWithoutOpsHasNone) {
  const Program program = ProgramBuilder().Build();
  EXPECT_THAT(Texts(AllOps(program)), IsEmpty());
  EXPECT_THAT(Texts(InnerOps(program)), IsEmpty());
}

TEST(AllOpsTest, AlgorithmsTakeTheRange) {
  const Program program = FiveBlocks();
  EXPECT_EQ(absl::c_count_if(AllOps(program), IsBackward), 1);
  EXPECT_TRUE(absl::c_any_of(AllOps(program), [](const Op& op) { return op.block() == 2; }));
  EXPECT_FALSE(absl::c_any_of(InnerOps(program), IsBackward));
}

TEST(AllVarsTest, VariablesOfAllBlocksAreInOrder) {
  const Program program = FiveBlocks();
  std::vector<std::string> names;
  for (const Var& var : AllVars(program)) names.emplace_back(var.name());
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "inner"));
}

}  // namespace
}  // namespace weft::testing
