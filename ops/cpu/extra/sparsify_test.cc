#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

struct Selected {
  std::vector<int64_t> rows;
  std::vector<float> values;
  int64_t height = 0;
};

// What the op selects of tensors of those elements; with residuals, which it replaces.
absl::StatusOr<Selected> Select(absl::string_view type, const AttrValues& attrs,
                                const std::vector<std::vector<float>>& xs,
                                std::vector<std::vector<float>>* residuals = nullptr) {
  std::vector<Tensor> inputs, states;
  std::vector<Tensor*> x, residual;
  for (const auto& values : xs)
    inputs.push_back(Floats({static_cast<int64_t>(values.size())}, values));
  for (size_t i = 0; residuals != nullptr && i < residuals->size(); ++i) {
    states.push_back(Floats({static_cast<int64_t>((*residuals)[i].size())}, (*residuals)[i]));
  }
  for (Tensor& tensor : inputs) x.push_back(&tensor);
  for (Tensor& tensor : states) residual.push_back(&tensor);
  Tensor out = Rows({1, 1}, {}, {});
  SlotPointers in = {{"X", x}}, outs = {{"Out", {&out}}};
  if (residuals != nullptr) {
    in.push_back({"Residual", residual});
    outs.push_back({"ResidualOut", residual});
  }
  WEFT_RETURN_IF_ERROR(RunOpOn(type, in, attrs, outs));
  for (size_t i = 0; i < states.size(); ++i) (*residuals)[i] = Values<float>(states[i]);
  return Selected{{out.rows().begin(), out.rows().end()}, Values<float>(out), out.height()};
}

TEST(SparsifyTest, TopKKeepsTheLargestMagnitudesByAscendingIndex) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Selected sparse, Select("sparsify_topk", {{"k", int64_t{3}}},
                                                          {{.1F, -.9F, .5F}, {2.5F, -1.2F, .7F}}));
  EXPECT_THAT(sparse.rows, ElementsAre(1, 3, 4));
  EXPECT_THAT(sparse.values, ElementsAre(-.9F, 2.5F, -1.2F));
  EXPECT_EQ(sparse.height, 6);
}

TEST(SparsifyTest, OfEqualMagnitudesTheFirstOnesWin) {
  WEFT_ASSERT_OK_AND_ASSIGN(Selected sparse,
                            Select("sparsify_topk", {{"k", int64_t{3}}}, {{1, -1, 1, 2, -1}}));
  EXPECT_THAT(sparse.rows, ElementsAre(0, 1, 3));
  WEFT_ASSERT_OK_AND_ASSIGN(sparse, Select("sparsify_topk", {{"k", int64_t{2}}}, {{0, 0, 0}}));
  EXPECT_THAT(sparse.rows, ElementsAre(0, 1));
  WEFT_ASSERT_OK_AND_ASSIGN(sparse,
                            Select("sparsify_topk", {{"k", int64_t{0}}}, {{kNotANumber, 1}}));
  EXPECT_THAT(sparse.rows, IsEmpty());
}

TEST(SparsifyTest, NansAreTheLargest) {
  WEFT_ASSERT_OK_AND_ASSIGN(Selected sparse,
                            Select("sparsify_topk", {{"k", int64_t{2}}},
                                   {{kInfinite, 1, -kNotANumber, -kInfinite, kNotANumber}}));
  EXPECT_THAT(sparse.rows, ElementsAre(2, 4));
  WEFT_ASSERT_OK_AND_ASSIGN(
      sparse, Select("sparsify_threshold", {{"threshold", 5.0F}}, {{kNotANumber, 4, -kInfinite}}));
  EXPECT_THAT(sparse.rows, ElementsAre(0, 2));
}

TEST(SparsifyTest, ThresholdsKeepWhatEqualsThemButNoZeros) {
  WEFT_ASSERT_OK_AND_ASSIGN(Selected sparse, Select("sparsify_threshold", {{"threshold", .5F}},
                                                    {{.5F, -.5F, std::nextafter(.5F, 0.F), 2}}));
  EXPECT_THAT(sparse.rows, ElementsAre(0, 1, 3));
  WEFT_ASSERT_OK_AND_ASSIGN(
      sparse, Select("sparsify_threshold", {{"threshold", 0.0F}}, {{0, -0.0F, 1e-45F}, {0, 3}}));
  EXPECT_THAT(sparse.rows, ElementsAre(2, 4));
}

TEST(SparsifyTest, ResidualsHaveWhatIsNotSent) {
  std::vector<std::vector<float>> residuals = {{0, .5F}, {.25F}};
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Selected sparse,
      Select("sparsify_threshold", {{"threshold", .5F}}, {{.25F, .25F}, {-.5F}}, &residuals));
  EXPECT_THAT(sparse.rows, ElementsAre(1));
  EXPECT_THAT(sparse.values, ElementsAre(.75F));
  EXPECT_THAT(residuals, ElementsAre(ElementsAre(.25F, 0), ElementsAre(-.25F)));
}

// Against sorting, on magnitudes of all sizes and many ties.
TEST(SparsifyTest, TopKEqualsASort) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t n = 1 + random() % 300;
    std::vector<float> x;
    for (size_t i = 0; i < n; ++i) {
      const float magnitude =
          std::ldexp(static_cast<float>(random() % 8), static_cast<int>(random() % 60) - 30);
      x.push_back(random() % 2 == 0 ? magnitude : -magnitude);
    }
    const auto k = static_cast<int64_t>(random() % (n + 1));
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return std::abs(x[a]) > std::abs(x[b]); });
    order.resize(k);
    std::sort(order.begin(), order.end());
    WEFT_ASSERT_OK_AND_ASSIGN(const Selected sparse, Select("sparsify_topk", {{"k", k}}, {x}));
    ASSERT_EQ(sparse.rows, order) << "trial " << trial;
  }
}

TEST(SparsifyTest, WrongInputsAreErrors) {
  EXPECT_THAT(Select("sparsify_topk", {{"k", int64_t{3}}}, {{1, 2}}),
              IsInvalidArgument("attribute k: expected a number from 0 to 2"));
  EXPECT_THAT(Select("sparsify_threshold", {{"threshold", -1.0F}}, {{1, 2}}),
              IsInvalidArgument("attribute threshold"));
  std::vector<std::vector<float>> residuals = {{0, 0, 0}};
  EXPECT_THAT(Select("sparsify_topk", {{"k", int64_t{1}}}, {{1, 2}}, &residuals),
              IsInvalidArgument("Residual"));
  residuals = {{0, 0}, {0}};
  EXPECT_THAT(Select("sparsify_topk", {{"k", int64_t{1}}}, {{1, 2}}, &residuals),
              IsInvalidArgument("Residual"));
}

TEST(DensifyTest, RowsFillTensorsAndAddUp) {
  Tensor x = Rows({5, 1}, {4, 1, 4, 0}, {1, 2, 3, -0.0F}), a, b, c;
  const AttrValues attrs = {{"concated_ranks", std::vector<int64_t>{2, 1, 1}},
                            {"concated_shapes", std::vector<int64_t>{1, 2, 0, 3}}};
  WEFT_ASSERT_OK(RunOpOn("densify", {{"X", {&x}}}, attrs, {{"Out", {&a, &b, &c}}}));
  EXPECT_THAT(Values<float>(a), ElementsAre(0, 2));
  EXPECT_FALSE(std::signbit(a.data<float>()[0]));
  EXPECT_THAT(a.dims(), ElementsAre(1, 2));
  EXPECT_EQ(b.size(), 0);
  EXPECT_THAT(Values<float>(c), ElementsAre(0, 0, 4));
}

TEST(DensifyTest, OtherShapesAreErrors) {
  Tensor x = Rows({5, 1}, {4}, {1}), a;
  EXPECT_THAT(RunOpOn("densify", {{"X", {&x}}},
                      {{"concated_ranks", std::vector<int64_t>{1}},
                       {"concated_shapes", std::vector<int64_t>{4}}},
                      {{"Out", {&a}}}),
              IsInvalidArgument("input X"));
  EXPECT_THAT(RunOpOn("densify", {{"X", {&x}}},
                      {{"concated_ranks", std::vector<int64_t>{2}},
                       {"concated_shapes", std::vector<int64_t>{5}}},
                      {{"Out", {&a}}}),
              IsInvalidArgument("concated_ranks"));
}

}  // namespace
}  // namespace weft::testing
