#include "ops/kernel.h"

#include "base/testing/test.h"

namespace weft::testing {
namespace {

absl::StatusOr<Kernel> NoKernel(const KernelSpec&) { return absl::UnimplementedError("none"); }

TEST(KernelSpecTest, SlotWithoutVariableHasNoIndex) {
  KernelSpec spec;
  spec.inputs["X"].first = 2;
  spec.inputs["X"].count = 1;
  spec.inputs["Y"].first = 3;
  EXPECT_EQ(spec.Input("X"), 2);
  EXPECT_EQ(spec.Input("Y"), -1) << "empty";
  EXPECT_EQ(spec.Input("Z"), -1) << "missing";
  EXPECT_EQ(spec.Output("X"), -1);
}

TEST(KernelTableTest, FindsByTypeAndListsTypesSorted) {
  KernelTable table;
  table.Add("relu", NoKernel);
  table.Add("mul", NoKernel);
  EXPECT_NE(table.Find("mul"), nullptr);
  EXPECT_EQ(table.Find("add"), nullptr);
  EXPECT_THAT(table.op_types(), ElementsAre("mul", "relu"));
}

TEST(KernelTableTest, KernelsForRowsAreApart) {
  KernelTable table;
  table.AddForRows("sgd", NoKernel);
  EXPECT_EQ(table.Find("sgd"), nullptr);
  EXPECT_NE(table.FindForRows("sgd"), nullptr);
  table.Add("sgd", NoKernel);
  table.Add("mul", NoKernel);
  EXPECT_EQ(table.FindForRows("mul"), nullptr);
  EXPECT_THAT(table.op_types(), ElementsAre("mul", "sgd"));
}

TEST(KernelTableDeathTest, TypeAddedTwiceDies) {
  KernelTable table;
  table.Add("relu", NoKernel);
  EXPECT_DEATH(table.Add("relu", NoKernel), "relu already exists");
  table.AddForRows("relu", NoKernel);
  EXPECT_DEATH(table.AddForRows("relu", NoKernel), "relu already exists");
}

TEST(RandomStateTest, RanksShareInitializersAlone) {
  RandomState rank0 = RandomState::Seeded(3, 0), rank1 = RandomState::Seeded(3, 1);
  EXPECT_EQ(rank0.initializers, rank1.initializers);
  EXPECT_NE(rank0.noise, rank1.noise);
  EXPECT_NE(rank0.noise, rank0.initializers);
  EXPECT_NE(rank0.dropout.key, rank1.dropout.key);
}

TEST(RandomStateTest, SeedsDiffer) {
  EXPECT_NE(RandomState::Seeded(3, 0).initializers, RandomState::Seeded(4, 0).initializers);
  EXPECT_NE(DropoutState::OfStep(3, 0, 1).key, DropoutState::OfStep(4, 0, 1).key);
  EXPECT_NE(DropoutState::OfStep(3, 0, 1).key, DropoutState::OfStep(3, 0, 2).key);
}

}  // namespace
}  // namespace weft::testing
