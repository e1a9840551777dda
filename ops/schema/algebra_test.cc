#include "ops/schema/algebra.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

Algebra Of(const char* type) { return AlgebraOf(type, FindOpSchema(type)); }

TEST(AlgebraTest, KnowsArithmetic) {
  EXPECT_EQ(Of("sum"), Algebra::kSum);
  EXPECT_EQ(Of("elementwise_sub"), Algebra::kSubtract);
  EXPECT_EQ(Of("scale"), Algebra::kScale);
  EXPECT_EQ(Of("relu"), Algebra::kNone);
  EXPECT_EQ(Of("sparsify_topk"), Algebra::kSparsify);
}

TEST(AlgebraTest, KnowsComparisonsAndConditions) {
  EXPECT_EQ(Of("elementwise_mod"), Algebra::kModulo);
  EXPECT_EQ(Of("greater_equal"), Algebra::kGreaterEqual);
  EXPECT_EQ(Of("logical_not"), Algebra::kNot);
  EXPECT_EQ(Of("increment"), Algebra::kIncrement);
}

TEST(AlgebraTest, SumSchemaIsTheSum) {
  EXPECT_EQ(AlgebraOf(SumSchema().type(), &SumSchema()), Algebra::kSum);
}

TEST(AlgebraTest, KnowsResultsIndependentOfInputValues) {
  EXPECT_EQ(Of("fill_constant"), Algebra::kConstant);
  EXPECT_EQ(Of("fill_zeros_like"), Algebra::kZeros);
  EXPECT_EQ(Of("fill_any_like"), Algebra::kFill);
}

TEST(AlgebraTest, NameIdentifiesBackward) {
  EXPECT_EQ(Of("mul_grad"), Algebra::kBackward);
  EXPECT_EQ(Of("an_op_of_a_fork_grad"), Algebra::kBackward);
}

TEST(AlgebraTest, SomeUnregisteredTypesDraw) {
  EXPECT_EQ(Of("exponential"), Algebra::kRandom);
  EXPECT_EQ(Of("an_op_of_a_fork"), Algebra::kNone);
}

// Averaged over ranks they would be those of one rank.
TEST(AlgebraTest, GradientsThatAreCountsAreNotLinearInThoseOfTheLoss) {
  EXPECT_EQ(Of("cvm_grad"), Algebra::kNone);
  EXPECT_EQ(Of("data_norm_grad"), Algebra::kNone);
}

// A new schema with side effects must not be taken for a function of its inputs. (What an op prints
// is nothing that it computes.)
TEST(AlgebraTest, OpsWithSideEffectsAreRandom) {
  for (const OpSchema* schema : AllOpSchemas()) {
    const bool is_control =
        schema->Has(Trait::kBranch) || schema->Has(Trait::kLoop) || schema->Has(Trait::kBlockGrad);
    if (!schema->Has(Trait::kSideEffect) || schema->Has(Trait::kRingSetup) || is_control) continue;
    if (schema->type() == "print") continue;
    EXPECT_EQ(Of(schema->type().c_str()), Algebra::kRandom) << schema->type();
  }
}

// What is called a sum or a product must be linear at least by its schema.
TEST(AlgebraTest, AgreesWithTraits) {
  for (const char* type :
       {"sum", "elementwise_add", "elementwise_sub", "assign", "memcpy", "concat", "split",
        "reshape", "reshape2", "squeeze2", "unsqueeze2", "flatten2", "flatten_contiguous_range"}) {
    EXPECT_TRUE(FindOpSchema(type)->Has(Trait::kLinear)) << type;
  }
}

}  // namespace
}  // namespace weft
