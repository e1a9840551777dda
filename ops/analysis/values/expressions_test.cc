#include "ops/analysis/values/expressions.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Term = ExpressionTable::Term;

class ExpressionTableTest : public ::testing::Test {
 protected:
  ExprId Sum(std::vector<Term> terms) { return table_.Sum(&terms, &factor_); }

  ExpressionTable table_;
  const ExprId a_ = table_.Initial("a");
  const ExprId b_ = table_.Initial("b");
  const ExprId c_ = table_.Initial("c");
  double factor_ = -1;
};

TEST_F(ExpressionTableTest, TheSameCallIsTheSameExpression) {
  const OperationId relu = table_.Operation("relu", "relu");
  const ExprId first = table_.Call(relu, {a_});
  EXPECT_EQ(table_.Call(relu, {a_}), first);
  EXPECT_NE(table_.Call(relu, {b_}), first);
  EXPECT_NE(table_.Call(table_.Operation("tanh", "tanh"), {a_}), first);
}

TEST_F(ExpressionTableTest, OutputsOfACallAreDifferent) {
  const OperationId split = table_.Operation("split", "split");
  const ExprId first = table_.Call(split, {a_}, 3);
  const ExprId next = table_.Call(split, {b_}, 3);
  EXPECT_EQ(ExpressionTable::Output(first, 3), next);
  EXPECT_NE(ExpressionTable::Output(first, 1), ExpressionTable::Output(next, 1));
}

TEST_F(ExpressionTableTest, ManyCallsStayApart) {
  const OperationId add_one = table_.Operation("inc", "inc");
  std::vector<ExprId> chain = {a_};
  for (int i = 0; i < 5000; ++i) chain.push_back(table_.Call(add_one, {chain.back()}));
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(table_.Call(add_one, {chain[i]}), chain[i + 1]);
  }
}

TEST_F(ExpressionTableTest, SumsAreEqualUpToOrderAndAssociation) {
  const ExprId left = Sum({{Sum({{a_, 1}, {b_, 1}}), 1}, {c_, 1}});
  EXPECT_EQ(Sum({{c_, 1}, {Sum({{b_, 1}, {a_, 1}}), 1}}), left);
  EXPECT_NE(Sum({{c_, 1}, {b_, 1}}), left);
}

TEST_F(ExpressionTableTest, TheCommonFactorIsPulledOut) {
  const ExprId sum = Sum({{a_, 1}, {b_, 2}});
  EXPECT_EQ(factor_, 1);
  EXPECT_EQ(Sum({{a_, 0.25}, {b_, 0.5}}), sum);
  EXPECT_EQ(factor_, 0.25);
  EXPECT_NE(Sum({{a_, 1}, {b_, 3}}), sum);
}

TEST_F(ExpressionTableTest, FactorsAreEqualUpToRounding) {
  const ExprId sum = Sum({{a_, 1}, {b_, 1}});
  EXPECT_EQ(Sum({{a_, 1.0 / 3}, {b_, static_cast<double>(1.0f / 3)}}), sum);
}

// A factor that is left over in every step grows.
TEST_F(ExpressionTableTest, FactorsThatAreNoRoundingDiffer) {
  for (const double factor : {0.999995, 0.999999, 1.000001, 1.000009}) {
    EXPECT_FALSE(SameFactor(factor, 1)) << factor;
    EXPECT_NE(table_.Scaled(a_, factor), a_) << factor;
    EXPECT_NE(Sum({{a_, 1}, {b_, factor}}), Sum({{a_, 1}, {b_, 1}})) << factor;
    EXPECT_NE(table_.Scaled(a_, 3 * factor), table_.Scaled(a_, 3)) << factor;
  }
  EXPECT_EQ(table_.Scaled(a_, static_cast<double>(0.7f)), table_.Scaled(a_, 0.7));
  EXPECT_EQ(table_.ToString(table_.Scaled(a_, 0.999999)), "0.999999 *(a)");
  EXPECT_EQ(table_.ToString(table_.Scaled(a_, 1.000001)), "1.000001 *(a)");
}

TEST(ExactFactor, IsTheFractionThatAnAttributeStandsFor) {
  EXPECT_EQ(ExactFactor(1.0f / 3), 1.0 / 3);
  EXPECT_EQ(ExactFactor(-2.0f / 7), -2.0 / 7);
  EXPECT_EQ(ExactFactor(0.1f), 0.1);
  EXPECT_EQ(ExactFactor(1e-4f), 1e-4);
  EXPECT_EQ(ExactFactor(0), 0);
  EXPECT_EQ(ExactFactor(12345.5f), 12345.5);
  EXPECT_EQ(ExactFactor(0.999995f), static_cast<double>(0.999995f));
  EXPECT_TRUE(std::isnan(ExactFactor(std::nanf(""))));
  // Errors of many factors do not add up.
  double product = 1;
  for (const int n : {3, 5, 6, 7, 9, 11, 13, 100, 1000, 10000}) {
    product *= ExactFactor(1.0f / static_cast<float>(n)) * n;
  }
  EXPECT_NEAR(product, 1, 1e-14);
}

TEST_F(ExpressionTableTest, CancelledTermsVanish) {
  // b - (b - a), as LocalSGD with a snapshot has it.
  const ExprId inner = Sum({{b_, 1}, {a_, -1}});
  EXPECT_EQ(Sum({{b_, 1}, {inner, -factor_}}), a_);
  EXPECT_EQ(factor_, 1);
  EXPECT_EQ(Sum({{a_, 1}, {a_, -1}}), table_.Zero());
  EXPECT_EQ(factor_, 0);
  EXPECT_EQ(Sum({{a_, 1}, {table_.Zero(), 1}}), a_);
}

TEST_F(ExpressionTableTest, ScaledIsAnotherValue) {
  EXPECT_EQ(table_.Scaled(a_, 1), a_);
  EXPECT_NE(table_.Scaled(a_, 2), a_);
  EXPECT_EQ(table_.Scaled(a_, 2), table_.Scaled(a_, 2));
  EXPECT_EQ(table_.Scaled(a_, 0), table_.Zero());
}

TEST_F(ExpressionTableTest, AMultipleOfAMultipleIsOneMultiple) {
  const ExprId triple = table_.Scaled(a_, 3);
  EXPECT_EQ(table_.Scaled(triple, 2), table_.Scaled(a_, 6));
  EXPECT_EQ(table_.Scaled(triple, 1.0 / 3), a_);
  EXPECT_NE(table_.Scaled(triple, 2), table_.Scaled(a_, 2));
  EXPECT_EQ(table_.Unscaled(triple).expr, a_);
  EXPECT_EQ(table_.Unscaled(triple).factor, 3);
  EXPECT_EQ(table_.Unscaled(a_).expr, a_);
  EXPECT_EQ(table_.Unscaled(a_).factor, 1);
  // In sums: 3 a + b = b + 3 a, 3 a - 3 a = 0.
  EXPECT_EQ(Sum({{triple, 1}, {b_, 1}}), Sum({{b_, 1}, {a_, 3}}));
  EXPECT_EQ(Sum({{triple, 1}, {a_, -3}}), table_.Zero());
  EXPECT_EQ(table_.ToString(triple), "3 *(a)");
}

TEST_F(ExpressionTableTest, ShowsTheSmallestPartThatDiffers) {
  const OperationId sgd = table_.Operation("sgd", "sgd");
  const OperationId clip = table_.Operation("clip", "clip");
  const ExprId right = table_.Call(sgd, {a_, table_.Call(clip, {b_})});
  const ExprId wrong = table_.Call(sgd, {a_, table_.Call(clip, {c_})});
  const ExpressionTable::Difference difference = table_.FindDifference(right, wrong);
  EXPECT_EQ(difference.a, "b");
  EXPECT_EQ(difference.b, "c");
  EXPECT_EQ(table_.ToString(right), "sgd(a, clip(b))");
}

TEST_F(ExpressionTableTest, SumsThatDifferInSeveralTermsAreShownWhole) {
  const ExprId left = Sum({{a_, 1}, {b_, 1}});
  const ExprId d = table_.Initial("d");
  const ExprId right = Sum({{c_, 1}, {d, 1}});
  EXPECT_THAT(table_.FindDifference(left, right).a, HasSubstr("sum(a, b)"));
}

// "a=1 b=2" as details.
ExpressionTable::Details DetailsOf(absl::string_view identity) {
  ExpressionTable::Details details;
  for (absl::string_view detail : absl::StrSplit(identity, ' ')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(detail, '=');
    details.insert(pair);
  }
  return details;
}

TEST_F(ExpressionTableTest, DetailsDistinguishOperationsOfOneLabel) {
  const ExprId a = table_.Call(table_.Operation("axis=0 mode=up", "round", &DetailsOf), {a_});
  const ExprId b =
      table_.Call(table_.Operation("axis=0 digits=3 mode=down", "round", &DetailsOf), {a_});
  const OperationId clip = table_.Operation("clip", "clip");
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Call(clip, {a}), table_.Call(clip, {b}));
  EXPECT_EQ(difference.a, "round{digits=none, mode=up}(a)");
  EXPECT_EQ(difference.b, "round{digits=3, mode=down}(a)");
}

TEST_F(ExpressionTableTest, LongDetailsAreShownWhereTheyDiffer) {
  const std::string start = absl::StrCat("values=", std::string(1000, '1'));
  const ExprId a = table_.Call(table_.Operation(start + "2", "constant", &DetailsOf), {});
  const ExprId b = table_.Call(table_.Operation(start + "3", "constant", &DetailsOf), {});
  const ExpressionTable::Difference difference = table_.FindDifference(a, b);
  EXPECT_EQ(difference.a, "constant{values=...11111111111111112}");
  EXPECT_EQ(difference.b, "constant{values=...11111111111111113}");
}

TEST_F(ExpressionTableTest, OperationsOfOneLabelWithoutDetailsDiffer) {
  const ExprId one = table_.Call(table_.Operation("loop 1", "loop"), {a_});
  const ExprId other = table_.Call(table_.Operation("loop 2", "loop"), {a_});
  EXPECT_EQ(table_.FindDifference(one, other).a, "loop(a)");
  EXPECT_EQ(table_.FindDifference(one, other).b, "another loop(a)");
}

// Nobody has shown that what is not computed differs.
TEST_F(ExpressionTableTest, OpaqueExpressionsMayBeEqual) {
  const OperationId loop = table_.Operation("loop over block 1", "loop");
  table_.SetOpaque(loop);
  const ExprId looped = table_.Call(loop, {a_});
  EXPECT_TRUE(table_.FindDifference(looped, b_).may_be_equal);
  EXPECT_TRUE(table_.FindDifference(Sum({{looped, 1}, {b_, 1}, {c_, 1}}), a_).may_be_equal);
  EXPECT_FALSE(table_.FindDifference(a_, b_).may_be_equal);
  EXPECT_FALSE(table_.FindDifference(Sum({{a_, 1}, {b_, 1}}), a_).may_be_equal);

  std::vector<Term> many;
  for (int i = 0; i < 65; ++i) many.push_back({table_.Initial(absl::StrCat("term ", i)), 1});
  EXPECT_TRUE(table_.FindDifference(Sum(many), a_).may_be_equal);
}

TEST_F(ExpressionTableTest, WalkVisitsEveryPartOnce) {
  const OperationId relu = table_.Operation("relu", "relu");
  const OperationId add = table_.Operation("add", "add");
  const ExprId part = table_.Call(relu, {a_});
  const ExprId whole = table_.Call(add, {part, part, b_});
  ExpressionWalk walk(table_);
  walk.Add(whole);
  std::vector<ExprId> visited;
  while (!walk.done()) {
    visited.push_back(walk.Next());
    if (visited.back() == b_) walk.Add(c_);
  }
  EXPECT_THAT(visited, ::testing::UnorderedElementsAre(whole, part, a_, b_, c_));
}

}  // namespace
}  // namespace weft
