#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

absl::StatusOr<std::vector<float>> Draw(absl::string_view op, const Tensor& x,
                                        const AttrValues& attrs, const std::string& slot = "Out",
                                        int rank = 0) {
  RandomState random = RandomState::Seeded(7, rank);
  SlotCounts outputs = {{"Out", 1}};
  if (op == "rrelu") outputs.push_back({"Noise", 1});
  auto out = RunOp(op, {{"X", {x}}}, attrs, outputs, &random);
  if (!out.ok()) return out.status();
  return Values<float>((*out)[slot][0]);
}

Tensor Constant(int64_t size, float value) {
  return Floats({size}, std::vector<float>(size, value));
}

double Mean(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += v;
  return sum / values.size();
}

double Variance(std::vector<float> values) {
  const double mean = Mean(values);
  for (float& v : values) v = static_cast<float>((v - mean) * (v - mean));
  return Mean(values);
}

TEST(NoiseTest, EqualStatesDrawEqualNumbersAndRanksDiffer) {
  const std::vector<std::pair<const char*, float>> ops = {
      {"rrelu", -1}, {"gumbel_softmax", 1}, {"poisson", 5}};
  for (const auto& [op, value] : ops) {
    SCOPED_TRACE(op);
    WEFT_ASSERT_OK_AND_ASSIGN(auto first, Draw(op, Constant(40, value), {}));
    WEFT_ASSERT_OK_AND_ASSIGN(auto again, Draw(op, Constant(40, value), {}));
    WEFT_ASSERT_OK_AND_ASSIGN(auto other, Draw(op, Constant(40, value), {}, "Out", /*rank=*/1));
    EXPECT_EQ(first, again);
    EXPECT_NE(first, other);
  }
}

TEST(RreluTest, NoiseOfNegativeElementsIsUniformAndThatOfOthersOne) {
  const AttrValues limits = {{"lower", 0.2f}, {"upper", 0.8f}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto noise, Draw("rrelu", Constant(4000, -2), limits, "Noise"));
  EXPECT_THAT(noise, Each(AllOf(Ge(0.2f), Lt(0.8f))));
  EXPECT_NEAR(Mean(noise), 0.5, 0.01);
  EXPECT_NEAR(Variance(noise), 0.36 / 12, 0.003);
  EXPECT_THAT(Draw("rrelu", Floats({2}, {0, 3}), limits, "Noise"), IsOkAndHolds(ElementsAre(1, 1)));
}

TEST(RreluTest, LimitsInTheWrongOrderAreAnError) {
  EXPECT_THAT(Draw("rrelu", Constant(1, 1), {{"lower", 0.5f}, {"upper", 0.25f}}),
              IsInvalidArgument("attribute lower: expected at most 0.25 (upper), found 0.5"));
}

// The class of the largest X plus noise has the probability that softmax gives it.
TEST(GumbelSoftmaxTest, HardDrawsClassesByTheirSoftmax) {
  std::vector<float> logits;
  for (int i = 0; i < 4000; ++i) logits.insert(logits.end(), {std::log(1.0f), std::log(3.0f)});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            Draw("gumbel_softmax", Floats({4000, 2}, logits), {{"hard", true}}));
  double second = 0;
  for (size_t i = 0; i < out.size(); i += 2) {
    EXPECT_EQ(out[i] + out[i + 1], 1);
    second += out[i + 1];
  }
  EXPECT_NEAR(second / 4000, 0.75, 0.02);
}

TEST(GumbelSoftmaxTest, TemperatureZeroIsAnError) {
  EXPECT_THAT(Draw("gumbel_softmax", Constant(2, 1), {{"temperature", 0.0f}}),
              IsInvalidArgument("temperature"));
}

TEST(PoissonTest, MeanAndVarianceAreX) {
  for (const float mean : {0.5f, 4.0f, 50.0f}) {
    WEFT_ASSERT_OK_AND_ASSIGN(auto drawn, Draw("poisson", Constant(4000, mean), {}));
    EXPECT_NEAR(Mean(drawn), mean, 0.05 * mean);
    EXPECT_NEAR(Variance(drawn), mean, 0.1 * mean);
  }
  EXPECT_THAT(Draw("poisson", Constant(2, 0), {}), IsOkAndHolds(ElementsAre(0, 0)));
}

TEST(PoissonTest, InvalidMeanIsAnError) {
  for (const float mean : {-1.0f, NAN, INFINITY}) {
    EXPECT_THAT(Draw("poisson", Constant(1, mean), {}), IsInvalidArgument("input X"));
  }
}

}  // namespace
}  // namespace weft::testing
