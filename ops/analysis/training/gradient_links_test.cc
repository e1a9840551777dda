#include "ops/analysis/training/gradient_links.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kNone = GradientLinks::kNone;

class GradientLinksTest : public ::testing::Test {
 protected:
  void Parse(const std::string& ops) {
    std::string vars;
    for (const char* name : {"x", "y", "z", "v", "x@GRAD", "y@GRAD", "z@GRAD", "v@GRAD", "dd"}) {
      vars += std::string("    var ") + name + " : fp32[2, 2]\n";
    }
    absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(vars + ops));
    ASSERT_TRUE(program.ok()) << program.status();
    program_.emplace(*std::move(program));
  }
  OpId Id(int i) { return program_->block(0).ops()[i]; }
  Op At(int i) { return program_->op(Id(i)); }

  absl::optional<Program> program_;
};

TEST_F(GradientLinksTest, LinksSlotsByName) {
  Parse(
      "    Out=[z] = mul(X=[x], Y=[y])\n"
      "    X@GRAD=[x@GRAD], Y@GRAD=[y@GRAD] = mul_grad(X=[x], Y=[y], Out@GRAD=[z@GRAD])\n"
      "    Out=[v] = tanh(X=[z])\n"
      "    X@GRAD=[z@GRAD] = tanh_grad(Out=[v], Out@GRAD=[v@GRAD])\n");
  const absl::optional<GradientLinks> of_mul = LinkGradient(At(0), At(1));
  ASSERT_TRUE(of_mul.has_value());
  ASSERT_EQ(of_mul->inputs.size(), 3u);
  EXPECT_EQ(of_mul->inputs[0].argument, 0u);
  EXPECT_FALSE(of_mul->inputs[0].is_gradient);
  EXPECT_EQ(of_mul->inputs[1].argument, 1u);
  EXPECT_EQ(of_mul->inputs[2].argument, 2u);
  EXPECT_TRUE(of_mul->inputs[2].is_gradient);
  EXPECT_THAT(of_mul->outputs, ElementsAre(0u, 1u));
  // An output of tanh.
  EXPECT_EQ(LinkGradient(At(2), At(3))->inputs[0].argument, 1u);
  EXPECT_FALSE(LinkGradient(At(0), At(3)).has_value());
}

TEST_F(GradientLinksTest, LinksSecondGradientsToGradientOps) {
  Parse(
      "    X@GRAD=[x@GRAD], Y@GRAD=[y@GRAD] = mul_grad(X=[x], Y=[y], Out@GRAD=[z@GRAD])\n"
      "    DX=[v], DDOut=[z] = mul_grad_grad(X=[x], Y=[y], DOut=[z@GRAD], DDY=[dd])\n");
  const absl::optional<GradientLinks> links = LinkGradient(At(0), At(1));
  ASSERT_TRUE(links.has_value());
  EXPECT_EQ(links->inputs[2].argument, 2u);  // Out@GRAD, which is a value here
  EXPECT_FALSE(links->inputs[2].is_gradient);
  EXPECT_EQ(links->inputs[3].argument, 4u);  // the gradient of Y@GRAD
  EXPECT_TRUE(links->inputs[3].is_gradient);
  EXPECT_THAT(links->outputs, ElementsAre(0u, 2u));
}

TEST_F(GradientLinksTest, ParametersAreTheSameWhereTheyAreGatheredAgain) {
  for (const char* name :
       {"y@AGAIN", "y@AGAIN_1", "y@OTHER", "z@AGAIN", "y@AGAINST", "y@AGAIN@GRAD"}) {
    Parse(absl::StrCat("    var ", name, " : fp32[2, 2]\n    Out=[z] = mul(X=[x], Y=[y])\n",
                       "    Y@GRAD=[v] = mul_grad(X=[x], Y=[", name, "], Out@GRAD=[dd])\n"));
    const OpId found = DifferentiatedOps(*program_).Find(At(1), [](OpId) { return true; });
    const bool is_again = name == std::string("y@AGAIN") || name == std::string("y@AGAIN_1");
    EXPECT_EQ(found.valid(), is_again) << name;
  }
}

TEST_F(GradientLinksTest, UnknownSlotsHaveNoLink) {
  Parse(
      "    Out=[z] = mul(X=[x], Y=[y])\n"
      "    V@GRAD=[v] = mul_grad(V=[v], Out@GRAD=[z@GRAD])\n");
  const absl::optional<GradientLinks> links = LinkGradient(At(0), At(1));
  ASSERT_TRUE(links.has_value());
  EXPECT_EQ(links->inputs[0].argument, kNone);
  EXPECT_THAT(links->outputs, ElementsAre(kNone));
}

TEST_F(GradientLinksTest, ComparesAttributesWithDefaults) {
  Parse(
      "    Out=[z] = reduce_sum(X=[x]) {dim=ints[0], reduce_all=false}\n"
      "    X@GRAD=[x@GRAD] = reduce_sum_grad(X=[x], Out@GRAD=[z@GRAD])\n"
      "    X@GRAD=[x@GRAD] = reduce_sum_grad(X=[x], Out@GRAD=[z@GRAD]) {dim=ints[1]}\n"
      "    X@GRAD=[x@GRAD] = reduce_sum_grad(X=[x], Out@GRAD=[z@GRAD]) {op_role=1}\n"
      "    X@GRAD=[x@GRAD] = an_unknown_grad(X=[x], Out@GRAD=[z@GRAD])\n");
  EXPECT_TRUE(AttributesAgree(At(0), At(1)));
  EXPECT_FALSE(AttributesAgree(At(0), At(2)));
  EXPECT_TRUE(AttributesAgree(At(0), At(3)));
  EXPECT_FALSE(AttributesAgree(At(0), At(4)));
}

// A pass that makes sparse gradients dense changes the gradient op alone.
TEST_F(GradientLinksTest, RepresentationsNeedNotAgree) {
  Parse(
      "    Out=[z] = lookup_table_v2(W=[x], Ids=[y]) {is_sparse=true, padding_idx=long(-1)}\n"
      "    W@GRAD=[x@GRAD] = lookup_table_v2_grad(W=[x], Ids=[y], Out@GRAD=[z@GRAD]) "
      "{is_sparse=false, padding_idx=long(-1)}\n"
      "    W@GRAD=[x@GRAD] = lookup_table_v2_grad(W=[x], Ids=[y], Out@GRAD=[z@GRAD]) "
      "{is_sparse=true, padding_idx=long(3)}\n");
  EXPECT_TRUE(AttributesAgree(At(0), At(1)));
  EXPECT_FALSE(AttributesAgree(At(0), At(2)));
}

// In PIR, a sum names the element type of its values, and its gradient op does not.
TEST_F(GradientLinksTest, ElementTypesNeedNotAgree) {
  Parse(
      "    Out=[z] = reduce_sum(X=[x]) {dim=ints[0], reduce_all=false, out_dtype=5}\n"
      "    X@GRAD=[x@GRAD] = reduce_sum_grad(X=[x], Out@GRAD=[z@GRAD]) {dim=ints[0]}\n");
  EXPECT_TRUE(AttributesAgree(At(0), At(1)));
}

TEST_F(GradientLinksTest, FindsTheLastOpWithTheseArgumentsAndAttributes) {
  Parse(
      "    Out=[z] = reduce_sum(X=[x]) {dim=ints[0]}\n"
      "    Out=[v] = reduce_sum(X=[x]) {dim=ints[1]}\n"
      "    Out=[y] = reduce_sum(X=[z]) {dim=ints[0]}\n"
      "    Out=[v] = reduce_sum(X=[x]) {dim=ints[0]}\n"
      "    X@GRAD=[x@GRAD] = reduce_sum_grad(X=[x], Out@GRAD=[dd]) {dim=ints[0]}\n"
      "    X@GRAD=[x@GRAD] = reduce_sum_grad(X=[v], Out@GRAD=[dd]) {dim=ints[0]}\n");
  DifferentiatedOps ops(*program_);
  EXPECT_EQ(ops.Find(At(4), [&](OpId) { return true; }), Id(3));
  EXPECT_EQ(ops.Find(At(4), [&](OpId id) { return id != Id(3); }), Id(0));
  EXPECT_FALSE(ops.Find(At(5), [&](OpId) { return true; }).valid());
}

// dd is the gradient of a sum, so of its terms, and a term of a sum of gradients.
TEST_F(GradientLinksTest, FindsAnOpWhoseGradientIsATermOfASum) {
  Parse(
      "    Out=[z] = elementwise_add(X=[x], Y=[y])\n"
      "    Y@GRAD=[y@GRAD] = elementwise_add_grad(X=[x], Y=[y], Out@GRAD=[dd])\n"
      "    Out=[v@GRAD] = elementwise_add(X=[dd], Y=[v])\n");
  DifferentiatedOps ops(*program_);
  EXPECT_EQ(ops.Find(At(1), [&](OpId id) { return id == Id(0); }), Id(0));
}

TEST_F(GradientLinksTest, AProgramWithoutForwardPassHasGradientsOfAbsentOps) {
  const std::string gradient = "    X@GRAD=[x@GRAD] = mul_grad(X=[x], Y=[y], Out@GRAD=[z@GRAD])\n";
  Parse(gradient);
  EXPECT_THAT(GradientsOfAbsentOps(*program_), ElementsAre(Id(0)));
  // Something computes z.
  Parse("    Out=[z] = relu(X=[v])\n" + gradient);
  EXPECT_THAT(GradientsOfAbsentOps(*program_), ElementsAre());
  // One gradient op of a type without its op, beside others.
  Parse("    Out=[v] = mul(X=[x], Y=[y])\n" + gradient +
        "    X@GRAD=[y@GRAD] = tanh_grad(Out=[x], Out@GRAD=[dd])\n");
  EXPECT_THAT(GradientsOfAbsentOps(*program_), ElementsAre());
}

}  // namespace
}  // namespace weft
