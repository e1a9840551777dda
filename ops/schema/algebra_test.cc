#include "ops/schema/algebra.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
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

// As an op of PIR is named that has no row (docs/reference/pir_ops.md), also one in place.
TEST(AlgebraTest, OpsOfPirDrawUnderTheirOwnNames) {
  for (const char* type : {"bernoulli",
                           "bernoulli_",
                           "binomial",
                           "dirichlet",
                           "dropout",
                           "exponential_",
                           "flash_attn",
                           "flash_attn_qkvpacked",
                           "flash_attn_unpadded",
                           "flash_attn_varlen_qkvpacked",
                           "flashmask_attention",
                           "fractional_max_pool2d",
                           "fractional_max_pool3d",
                           "fused_dot_product_attention",
                           "gaussian",
                           "gaussian_inplace_",
                           "graph_khop_sampler",
                           "graph_sample_neighbors",
                           "gumbel_softmax",
                           "memory_efficient_attention",
                           "multinomial",
                           "poisson",
                           "randint",
                           "random_",
                           "randperm",
                           "rrelu",
                           "standard_gamma",
                           "truncated_gaussian_random",
                           "uniform",
                           "uniform_inplace_",
                           "weighted_sample_neighbors"}) {
    EXPECT_EQ(Of(absl::StrCat("pd_op.", type).c_str()), Algebra::kRandom) << type;
  }
  EXPECT_EQ(Of("pd_op.relu_"), Algebra::kNone);
  EXPECT_EQ(Of("pd_op.assign_value_"), Algebra::kNone);
  EXPECT_EQ(Of("pd_op.poisson_grad"), Algebra::kBackward);
}

// Such an op gives a seed, or draws for its dropout only.
TEST(AlgebraTest, AttributesOfPirSayWhetherAnOpDraws) {
  const auto of = [](const std::function<void(ProgramBuilder*)>& set, const char* type) {
    ProgramBuilder builder;
    builder.Op(type, {{"Operand0", {"x"}}}, {{"Result0", {"y"}}});
    set(&builder);
    const Program program = builder.Build();
    return AlgebraOf(program.op(program.block(0).ops()[0]), nullptr);
  };
  const auto set_seed = [](ProgramBuilder* b) { b->IntAttr("seed", 0); };
  for (const char* type : {"class_center_sample", "fused_dropout_add", "nce", "top_p_sampling",
                           "tdm_sampler", "uniform_random_batch_size_like"}) {
    EXPECT_EQ(of(set_seed, absl::StrCat("pd_op.", type).c_str()), Algebra::kRandom) << type;
  }
  const auto drops = [](float part) {
    return [part](ProgramBuilder* b) { b->FloatAttr("dropout", part).BoolAttr("is_test", false); };
  };
  EXPECT_EQ(of(drops(0.1f), "pd_op.flash_attn"), Algebra::kRandom);
  EXPECT_EQ(of(drops(0.0f), "pd_op.flash_attn"), Algebra::kNone);
  const auto test = [](ProgramBuilder* b) { b->BoolAttr("is_test", true); };
  EXPECT_EQ(of(test, "pd_op.rrelu"), Algebra::kNone);
}

// Averaged over ranks they would be those of one rank.
TEST(AlgebraTest, AGradientThatIsACountIsNotLinearInThatOfTheLoss) {
  EXPECT_EQ(Of("cvm_grad"), Algebra::kNone);
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
}  // namespace weft::testing
