#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Longs = std::vector<int64_t>;

// Draws of shape [1000] in single precision.
absl::StatusOr<std::vector<float>> Draw(const std::string& op, AttrValues attrs, int seed,
                                        RandomState* random = nullptr) {
  const OpSchema* schema = FindOpSchema(op);
  const bool long_shape = std::holds_alternative<Longs>(schema->FindAttr("shape")->default_value);
  attrs.emplace_back("shape",
                     long_shape ? AttrValue(Longs{1000}) : AttrValue(std::vector<int32_t>{1000}));
  attrs.emplace_back("seed", seed);
  auto out = RunOp(op, {}, attrs, {{"Out", 1}}, random);
  if (!out.ok()) return out.status();
  return Values<float>((*out)["Out"][0]);
}

double Mean(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += v;
  return sum / values.size();
}

class RandomOpTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ops, RandomOpTest,
                         ::testing::Values("uniform_random", "gaussian_random",
                                           "truncated_gaussian_random"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RandomOpTest, ASeedGivesTheSameNumbersEveryTime) {
  RandomState random = RandomState::Seeded(1, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(auto first, Draw(GetParam(), {}, 7, &random));
  WEFT_ASSERT_OK_AND_ASSIGN(auto second, Draw(GetParam(), {}, 7));
  WEFT_ASSERT_OK_AND_ASSIGN(auto other, Draw(GetParam(), {}, 8));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

TEST_P(RandomOpTest, SeedZeroUsesTheRanksGenerator) {
  RandomState random = RandomState::Seeded(1, 0), same = RandomState::Seeded(1, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(auto first, Draw(GetParam(), {}, 0, &random));
  WEFT_ASSERT_OK_AND_ASSIGN(auto second, Draw(GetParam(), {}, 0, &random));
  WEFT_ASSERT_OK_AND_ASSIGN(auto again, Draw(GetParam(), {}, 0, &same));
  EXPECT_NE(first, second) << "equal shapes differ";
  EXPECT_EQ(first, again);
}

TEST_P(RandomOpTest, InitializersAreTheSameOnEveryRank) {
  RandomState rank0 = RandomState::Seeded(5, 0), rank1 = RandomState::Seeded(5, 1);
  WEFT_ASSERT_OK_AND_ASSIGN(auto first, Draw(GetParam(), {}, 0, &rank0));
  WEFT_ASSERT_OK_AND_ASSIGN(auto second, Draw(GetParam(), {}, 0, &rank1));
  EXPECT_EQ(first, second);
}

TEST_P(RandomOpTest, SeedZeroNeedsAGenerator) {
  EXPECT_THAT(Draw(GetParam(), {}, 0), IsFailedPrecondition("seed 0"));
}

TEST_P(RandomOpTest, IntegersHaveNoKernel) {
  EXPECT_THAT(Draw(GetParam(), {{"dtype", 3}}, 1), IsUnimplemented("int64"));
}

TEST(UniformRandomTest, StaysBetweenMinAndMax) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto drawn, Draw("uniform_random", {{"min", 2.0f}, {"max", 4.0f}}, 1));
  EXPECT_THAT(drawn, Each(AllOf(Ge(2), Le(4))));
  EXPECT_NEAR(Mean(drawn), 3, 0.1);
}

TEST(UniformRandomTest, DrawsTheWeightsThatPaddlesStartupProgramDrew) {
  // fc_0.w_0 of fit_a_line.
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("uniform_random", {},
                                            {{"shape", Longs{13, 1}},
                                             {"min", -0.6546536684036255f},
                                             {"max", 0.6546536684036255f},
                                             {"seed", 90}},
                                            {{"Out", 1}}));
  const Tensor& drawn = out["Out"][0];
  std::ifstream file("tests/data/fit_a_line/init.params", std::ios::binary);
  const std::string saved(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(saved, HasSubstr(std::string(static_cast<const char*>(drawn.raw()), drawn.bytes())));
}

TEST(UniformRandomTest, MinMayBeAboveMax) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto drawn, Draw("uniform_random", {{"min", 2.0f}, {"max", 1.0f}}, 1));
  EXPECT_THAT(drawn, ::testing::Each(::testing::AllOf(::testing::Ge(1.0f), ::testing::Le(2.0f))));
  EXPECT_NE(drawn[0], drawn[1]);
}

TEST(UniformRandomTest, DiagonalBeyondTheTensorIsAnError) {
  EXPECT_THAT(Draw("uniform_random", {{"diag_num", 3}, {"diag_step", 499}}, 1),
              IsInvalidArgument("diag_num"));
}

TEST(GaussianRandomTest, HasTheMeanAndDeviation) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto drawn,
                            Draw("gaussian_random", {{"mean", 3.0f}, {"std", 0.5f}}, 1));
  EXPECT_NEAR(Mean(drawn), 3, 0.1);
  for (float& v : drawn) v = (v - 3) * (v - 3);
  EXPECT_NEAR(std::sqrt(Mean(drawn)), 0.5, 0.05);
}

TEST(TruncatedGaussianRandomTest, StaysWithinTwoDeviations) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto drawn,
                            Draw("truncated_gaussian_random", {{"mean", 3.0f}, {"std", 0.5f}}, 1));
  EXPECT_THAT(drawn, Each(AllOf(Ge(2), Le(4))));
  EXPECT_NEAR(Mean(drawn), 3, 0.1);
}

absl::StatusOr<Tensor> Draw(absl::string_view op, const Tensor& x, const AttrValues& attrs,
                            int rank = 0) {
  RandomState random = RandomState::Seeded(7, rank);
  auto out = RunOp(op, {{"X", {x}}}, attrs, {{"Out", 1}}, &random);
  if (!out.ok()) return out.status();
  return (*out)["Out"][0];
}

TEST(DrawTest, EveryRankDrawsSeparately) {
  const Tensor half = Floats({40}, std::vector<float>(40, 0.5));
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor a, Draw("bernoulli", half, {}, /*rank=*/0));
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor b, Draw("bernoulli", half, {}, /*rank=*/1));
  EXPECT_NE(Values<float>(a), Values<float>(b));
}

TEST(DrawTest, InvalidProbabilitiesAreErrors) {
  for (float p : {-0.5f, 1.5f, NAN}) {
    EXPECT_THAT(Draw("bernoulli", Floats({1}, {p}), {}), IsInvalidArgument("is not in [0, 1]"));
  }
  for (float w : {-1.0f, NAN, INFINITY}) {
    EXPECT_THAT(Draw("multinomial", Floats({2}, {1, w}), {}), IsInvalidArgument("input X"));
  }
}

TEST(MultinomialTest, WithoutReplacementEveryCategoryWithAWeightComesOnce) {
  const Tensor x = Floats({5}, {0, 1e-30f, 1, 0, 3});
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor drawn, Draw("multinomial", x, {{"num_samples", 3}}));
  EXPECT_THAT(Values<int64_t>(drawn), UnorderedElementsAre(1, 2, 4));
  EXPECT_THAT(Draw("multinomial", x, {{"num_samples", 4}}),
              IsInvalidArgument("expected 4 categories with a weight in each row, found 3"));
}

TEST(RandIntTest, NothingBetweenTheLimitsIsAnError) {
  RandomState random = RandomState::Seeded(7, 0);
  EXPECT_THAT(RunOp("randint", {}, {{"low", 3}, {"high", 3}, {"shape", std::vector<int64_t>{2}}},
                    {{"Out", 1}}, &random),
              IsInvalidArgument("attribute low: expected a number below 3 (high), found 3"));
}

}  // namespace
}  // namespace weft::testing
