#include "tests/support/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

Tensor Floats(const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.data<float>()[i] = values[i];
  return tensor;
}

float First(const Tensor& tensor) { return tensor.data<float>()[0]; }

// Trains w from `start`: its loss is f(w), computed in fp32, and each step adds the loss to it.
absl::StatusOr<RoundingBounds> BoundsOf(float start, int steps,
                                        const std::function<float(float)>& f) {
  TrainingInputs inputs;
  inputs.params["w"] = Floats({start});
  return RoundingBounds::Measure(inputs, [&](const TrainingInputs& from) {
    TrainingResults results;
    float w = First(from.params.at("w"));
    results.losses.resize(1);
    for (int step = 0; step < steps; ++step) {
      results.losses[0].push_back(f(w));
      w += f(w);
    }
    results.state["w"] = Floats({w});
    return results;
  });
}

TEST(MovedByRoundingTest, MovesNumbersByAFewUnits) {
  std::vector<float> values;
  for (int i = 1; i <= 100; ++i) values.push_back(0.1F * static_cast<float>(i) + 0.01F);
  const Tensor numbers = Floats(values);
  const std::vector<double> moved = AsDoubles(MovedByRounding(numbers, 0));
  double most = 0, sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double move = moved[i] / double{values[i]} - 1;
    most = std::max(most, std::abs(move));
    sum += move;
  }
  EXPECT_GT(most, 0.9 * kMovedBy);
  EXPECT_LT(most, 1.2 * kMovedBy);  // rounded after that
  EXPECT_LT(std::abs(sum), 20 * kMovedBy);
  EXPECT_EQ(moved, AsDoubles(MovedByRounding(numbers, 0)));
  EXPECT_NE(moved, AsDoubles(MovedByRounding(numbers, 1)));
}

// As those of an input of a maximum and of its result.
TEST(MovedByRoundingTest, EqualNumbersMoveAlike) {
  const std::vector<double> moved = AsDoubles(MovedByRounding(Floats({0.1F, 0.7F, 0.1F}), 0));
  EXPECT_EQ(moved[0], moved[2]);
  EXPECT_NE(moved[0], double{0.1F});
}

TEST(MovedByRoundingTest, ExactNumbersStay) {
  EXPECT_THAT(AsDoubles(MovedByRounding(Floats({0, 1, -3, 0.5, 1000}), 1)),
              ElementsAre(0, 1, -3, 0.5, 1000));
  Tensor counts;
  counts.Resize(DType::kInt64, {1});
  counts.data<int64_t>()[0] = (int64_t{1} << 40) + 1;
  EXPECT_EQ(*MovedByRounding(counts, 1).data<int64_t>(), *counts.data<int64_t>());
}

TEST(RoundingBoundsTest, WellConditionedProgramsAreComparedToSixDigits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            BoundsOf(0.7F, 3, [](float w) { return std::sin(w); }));
  for (int step = 0; step < 3; ++step) {
    EXPECT_GE(bounds.OfLoss(0, step), 0.99 * kRoundingFactor * kMovedBy * std::sin(0.7));
    EXPECT_LE(bounds.OfLoss(0, step), 4e-6) << step;
  }
  EXPECT_THAT(bounds.OfState("w"), Each(Le(2e-5)));
}

// Where w is near pi/2, the tangent multiplies what is relative to w by 1 / (pi/2 - w).
TEST(RoundingBoundsTest, BoundsGrowWithTheCondition) {
  const auto bound = [](double distance) {
    const auto start = static_cast<float>(M_PI / 2 - distance);
    const auto bounds = BoundsOf(start, 1, [](float w) { return std::tan(w); });
    EXPECT_THAT(bounds, IsOk());
    return bounds.ok() ? bounds->OfLoss(0, 0) / bounds->results().losses[0][0] : 0;
  };
  EXPECT_LE(bound(0.5), 1e-5);
  EXPECT_GE(bound(0.01), 1e-4);
}

TEST(RoundingBoundsTest, BoundsNeverDecrease) {
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, BoundsOf(1.5F + 0.01F, 3, [](float w) {
                              return w < 2 ? std::tan(w) : 1e-3F * w;
                            }));
  EXPECT_GE(bounds.OfLoss(0, 1), bounds.OfLoss(0, 0));
}

TEST(RoundingBoundsTest, NothingCanBeComparedWithRounding) {
  const auto left = [](float w) { return w - 0.6999F; };
  EXPECT_THAT(BoundsOf(0.7F, 1, left).status(),
              IsFailedPrecondition("loss series 0: rounding may move the first loss, "));
}

// The second element moves with the others of its variable.
TEST(RoundingBoundsTest, ElementsThatStayedMayMoveAsTheOthers) {
  TrainingInputs inputs;
  inputs.params["w"] = Floats({0.7F, 0.5F});
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            RoundingBounds::Measure(inputs, [](const TrainingInputs& from) {
                              TrainingResults results;
                              results.state["w"] = from.params.at("w");
                              return results;
                            }));
  const std::vector<double> w = bounds.OfState("w");
  EXPECT_GT(w[1], kRoundingFactor * kMovedBy * 0.5);
  EXPECT_GT(w[0], w[1]);
  EXPECT_LT(w[0], 3 * kRoundingFactor * kMovedBy);
}

}  // namespace
}  // namespace weft::testing
