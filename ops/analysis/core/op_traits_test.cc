#include "ops/analysis/core/op_traits.h"

#include "gtest/gtest.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

Op OpAt(const Program& program, size_t i) { return program.op(program.block(0).ops()[i]); }

TEST(OpTraits, TraitsAreThoseOfTheSchema) {
  const Program program = ProgramBuilder()
                              .Op("c_allreduce_sum", {{"X", {"g"}}}, {{"Out", {"g"}}})
                              .Op("sgd", {{"Param", {"w"}}}, {{"ParamOut", {"w"}}})
                              .Build();
  OpTraits traits(program);
  EXPECT_TRUE(traits.Has(OpAt(program, 0), Trait::kCollective));
  EXPECT_FALSE(traits.Has(OpAt(program, 0), Trait::kOptimizer));
  EXPECT_TRUE(traits.Has(OpAt(program, 1), Trait::kOptimizer));
  EXPECT_EQ(traits.SchemaOf(OpAt(program, 1)), FindOpSchema("sgd"));
}

TEST(OpTraits, OpOfUnknownTypeHasNoTraitAndIsNotKnown) {
  const Program program = ProgramBuilder().Op("my_op", {}, {}).Build();
  OpTraits traits(program);
  EXPECT_FALSE(traits.IsRegistered(OpAt(program, 0)));
  EXPECT_FALSE(traits.Has(OpAt(program, 0), Trait::kCollective));
  EXPECT_EQ(traits.SchemaOf(OpAt(program, 0)), nullptr);
}

TEST(OpTraits, TypesThatACommitAddsAreLookedUp) {
  Program program = ProgramBuilder().Op("my_op", {}, {}).Var("g").Build();
  OpTraits traits(program);
  EXPECT_FALSE(traits.IsRegistered(OpAt(program, 0)));
  pb::OpDesc wait;
  wait.set_type("c_wait_comm");
  Rewriter rewriter(&program);
  rewriter.Append(0, wait);
  ASSERT_TRUE(rewriter.Commit().ok());
  EXPECT_TRUE(traits.Has(OpAt(program, 1), Trait::kStreamSync));
}

TEST(OpTraits, AnyHasCountsTheOpsThatAreLeft) {
  Program program =
      ProgramBuilder().Op("my_op", {}, {}).Op("sgd", {}, {}).Op("relu", {}, {}).Build();
  EXPECT_TRUE(AnyHas(program, Trait::kOptimizer));
  EXPECT_FALSE(AnyHas(program, Trait::kCollective));
  const Op sgd = OpAt(program, 1);
  Rewriter rewriter(&program);
  rewriter.Erase(sgd.id());
  ASSERT_TRUE(rewriter.Commit().ok());
  EXPECT_FALSE(AnyHas(program, Trait::kOptimizer));
  EXPECT_TRUE(OpTraits(program).Has(sgd, Trait::kOptimizer));
}

}  // namespace
}  // namespace weft::testing
