#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// Two examples of two features, four classes.
struct NceTest : public ::testing::Test {
  Tensor input = Floats({2, 2}, {1, 2, -1, 0.5});
  Tensor weight = Floats({4, 2}, {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8});
  Tensor bias = Floats({4, 1}, {0.1, 0, -0.1, 0.2});
  Tensor label = Int64s({2, 1}, {3, 1});
  Tensor cost, samples, outs;
  RandomState random = RandomState::Seeded(1, 0);

  absl::Status Run(AttrValues attrs) {
    attrs.emplace_back("num_total_classes", 4);
    return RunOpOn(
        "nce", {{"Input", {&input}}, {"Weight", {&weight}}, {"Bias", {&bias}}, {"Label", {&label}}},
        attrs, {{"Cost", {&cost}}, {"SampleLabels", {&samples}}, {"SampleLogits", {&outs}}},
        &random);
  }

  // The gradient of the weights, dense or rows.
  absl::Status RunGrad(AttrValues attrs, Tensor* dinput, Tensor* dweight, Tensor* dbias) {
    attrs.emplace_back("num_total_classes", 4);
    Tensor dcost = Floats({2, 1}, {1, 3});
    return RunOpOn("nce_grad",
                   {{"Input", {&input}},
                    {"Weight", {&weight}},
                    {"Bias", {&bias}},
                    {"Label", {&label}},
                    {"SampleLabels", {&samples}},
                    {"SampleLogits", {&outs}},
                    {"Cost@GRAD", {&dcost}}},
                   attrs,
                   {{"Input@GRAD", {dinput}}, {"Weight@GRAD", {dweight}}, {"Bias@GRAD", {dbias}}});
  }
};

TEST_F(NceTest, WithoutASeedNoiseComesFromTheStreamOfTheRank) {
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 50}}));
  const std::vector<int64_t> first = Values<int64_t>(samples);
  EXPECT_EQ(first[0], 3);
  EXPECT_EQ(first[51], 1);
  EXPECT_THAT(first, Each(AllOf(Ge(0), Lt(4))));
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 50}}));
  EXPECT_NE(Values<int64_t>(samples), first);
}

TEST_F(NceTest, WithASeedNoiseIsTheSameInEveryStep) {
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 50}, {"seed", 5}}));
  const std::vector<int64_t> first = Values<int64_t>(samples);
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 50}, {"seed", 5}}));
  EXPECT_EQ(Values<int64_t>(samples), first);
}

TEST_F(NceTest, LogUniformNoisePrefersSmallNumbersAndLeavesTheLastOut) {
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 1000}, {"sampler", 1}}));
  std::vector<int> counts(4);
  for (int64_t c : Values<int64_t>(samples)) ++counts[c];
  EXPECT_GT(counts[0], counts[1]);
  EXPECT_GT(counts[1], counts[2]);
  EXPECT_EQ(counts[3], 1);  // the label
}

TEST_F(NceTest, GivenNoiseIsTaken) {
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 2}, {"custom_neg_classes", std::vector<int32_t>{0, 2}}}));
  EXPECT_THAT(Values<int64_t>(samples), ElementsAre(3, 0, 2, 1, 0, 2));
}

TEST_F(NceTest, RowsOfTheWeightsGradientAreThoseOfTheDenseOne) {
  const AttrValues attrs = {{"num_neg_samples", 2},
                            {"custom_neg_classes", std::vector<int32_t>{0, 3}}};
  WEFT_ASSERT_OK(Run(attrs));
  Tensor dinput, dweight, dbias;
  WEFT_ASSERT_OK(RunGrad(attrs, &dinput, &dweight, &dbias));
  AttrValues sparse = attrs;
  sparse.emplace_back("is_sparse", true);
  Tensor dinput2, rows = Rows({1, 1}, {}, {}), dbias2;
  WEFT_ASSERT_OK(RunGrad(sparse, &dinput2, &rows, &dbias2));
  EXPECT_EQ(Values<float>(dinput2), Values<float>(dinput));
  EXPECT_EQ(Values<float>(dbias2), Values<float>(dbias));
  EXPECT_THAT(rows.rows(), ElementsAre(0, 1, 3));
  EXPECT_EQ(rows.height(), 4);
  std::vector<float> expected = Values<float>(dweight);
  EXPECT_THAT((std::vector<float>{expected[4], expected[5]}), Each(0));
  expected.erase(expected.begin() + 4, expected.begin() + 6);
  EXPECT_EQ(Values<float>(rows), expected);
}

TEST_F(NceTest, InvalidLabelsAreErrors) {
  label = Int64s({2, 1}, {3, 4});
  EXPECT_THAT(Run({{"num_neg_samples", 1}}), IsInvalidArgument("4 at position 2 is not in [0, 4)"));
}

TEST_F(NceTest, InvalidSamplesAreErrorsInTheGradient) {
  WEFT_ASSERT_OK(Run({{"num_neg_samples", 1}}));
  samples.data<int64_t>()[1] = -1;
  Tensor dinput, dweight, dbias;
  EXPECT_THAT(RunGrad({{"num_neg_samples", 1}}, &dinput, &dweight, &dbias),
              IsInvalidArgument("input SampleLabels: -1 at position 1 is not in [0, 4)"));
}

}  // namespace
}  // namespace weft::testing
