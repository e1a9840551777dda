// Normalization by channel, beyond what op_vectors_test compares with Paddle's numbers.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

using ::testing::FloatEq;

// A batch_norm of two channels with running mean 1, 2 and variance 3, 4.
struct BatchNormTest : public ::testing::Test {
  Tensor scale = Floats({2}, {2, 3}), bias = Floats({2}, {1, -1});
  Tensor mean = Floats({2}, {1, 2}), variance = Floats({2}, {3, 4});
  Tensor y, saved_mean, saved_variance;

  absl::Status Run(Tensor x, const AttrValues& attrs) {
    return RunOpOn("batch_norm",
                   {{"X", {&x}},
                    {"Scale", {&scale}},
                    {"Bias", {&bias}},
                    {"Mean", {&mean}},
                    {"Variance", {&variance}}},
                   attrs,
                   {{"Y", {&y}},
                    {"MeanOut", {&mean}},
                    {"VarianceOut", {&variance}},
                    {"SavedMean", {&saved_mean}},
                    {"SavedVariance", {&saved_variance}}});
  }
};

TEST_F(BatchNormTest, RunningMomentsMoveTowardsThoseOfTheBatch) {
  WEFT_ASSERT_OK(Run(Floats({2, 2}, {3, 0, 5, 8}), {{"momentum", 0.5f}, {"epsilon", 0.0f}}));
  EXPECT_THAT(Values<float>(saved_mean), ElementsAre(4, 4));
  EXPECT_THAT(Values<float>(saved_variance), ElementsAre(1, 0.25));  // 1 / deviation
  EXPECT_THAT(Values<float>(y), ElementsAre(-1, -4, 3, 2));
  EXPECT_THAT(Values<float>(mean), ElementsAre(2.5, 3));
  EXPECT_THAT(Values<float>(variance), ElementsAre(2, 10));
}

// 4 elements a channel, whose sample has a third more variance.
TEST_F(BatchNormTest, AnUnbiasedVarianceIsThatOfASample) {
  const Tensor x = Floats({4, 2}, {3, 0, 5, 8, 3, 0, 5, 8});
  WEFT_ASSERT_OK(Run(x, {{"momentum", 0.5f}, {"epsilon", 0.0f}, {"unbiased_variance", true}}));
  EXPECT_THAT(Values<float>(saved_variance), ElementsAre(1, 0.25));
  EXPECT_THAT(Values<float>(mean), ElementsAre(2.5, 3));
  EXPECT_THAT(Values<float>(variance),
              ElementsAre(FloatEq(0.5f * 3 + 0.5f * 4 / 3), FloatEq(0.5f * 4 + 0.5f * 64 / 3)));
}

// On one rank, the only case that runs.
TEST_F(BatchNormTest, TheSynchronizedOneIsTheSame) {
  const Tensor x = Floats({2, 2}, {3, 0, 5, 8});
  WEFT_ASSERT_OK(Run(x, {}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("sync_batch_norm",
                                            {{"X", {x}},
                                             {"Scale", {scale}},
                                             {"Bias", {bias}},
                                             {"Mean", {Floats({2}, {1, 2})}},
                                             {"Variance", {Floats({2}, {3, 4})}}},
                                            {}, {{"Y", 1}, {"MeanOut", 1}, {"VarianceOut", 1}}));
  EXPECT_EQ(Values<float>(out["Y"][0]), Values<float>(y));
  EXPECT_EQ(Values<float>(out["MeanOut"][0]), Values<float>(mean));
  EXPECT_EQ(Values<float>(out["VarianceOut"][0]), Values<float>(variance));
}

TEST_F(BatchNormTest, OneElementAChannelIsNotNormalized) {
  WEFT_ASSERT_OK(Run(Floats({1, 2}, {3, 7}), {}));
  EXPECT_THAT(Values<float>(y), ElementsAre(3, 7));
  EXPECT_THAT(Values<float>(mean), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(variance), ElementsAre(3, 4));
}

TEST_F(BatchNormTest, AnEmptyBatchLeavesRunningMoments) {
  WEFT_ASSERT_OK(Run(Floats({0, 2}, {}), {}));
  EXPECT_EQ(y.size(), 0);
  EXPECT_THAT(Values<float>(mean), ElementsAre(1, 2));
}

TEST_F(BatchNormTest, HalfPrecisionHasStatisticsInFp32) {
  Tensor x = MakeTensor<BFloat16>({2, 2}, {3.0f, 0.0f, 5.0f, 8.0f});
  WEFT_ASSERT_OK(Run(x, {{"epsilon", 0.0f}}));
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  EXPECT_EQ(saved_mean.dtype(), DType::kFloat32);
  EXPECT_EQ(Values<BFloat16>(y)[0], -1.0f);
}

// With running moments, a gradient op reads Mean and Variance, or equivalently the outputs.
TEST_F(BatchNormTest, GradientOfATestTakesRunningMoments) {
  Tensor x = Floats({1, 2}, {3, 7}), dy = Floats({1, 2}, {1, 1});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("batch_norm_grad",
                      {{"X", {x}},
                       {"Scale", {scale}},
                       {"Y@GRAD", {dy}},
                       {"MeanOut", {mean}},
                       {"VarianceOut", {variance}}},
                      {{"is_test", true}, {"epsilon", 1.0f}}, {{"X@GRAD", 1}, {"Scale@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["X@GRAD"][0]),
              Pointwise(FloatNear(1e-6f), {1.0f, 3 / std::sqrt(5.0f)}));
  EXPECT_THAT(Values<float>(out["Scale@GRAD"][0]),
              Pointwise(FloatNear(1e-6f), {1.0f, std::sqrt(5.0f)}));
  EXPECT_THAT(RunOp("batch_norm_grad", {{"X", {x}}, {"Scale", {scale}}, {"Y@GRAD", {dy}}}, {},
                    {{"X@GRAD", 1}}),
              IsInvalidArgument("SavedMean"));
}

// Y, X@GRAD, Scale@GRAD and Bias@GRAD, one after the other, for numbers around `center`.
template <typename T>
std::vector<T> NormAndGradient(const Dims& dims, const char* layout, T center) {
  const int64_t channels = std::string(layout) == "NHWC" ? dims.back() : dims[1];
  const auto numbers = [](const Dims& of, T around, int step) {
    std::vector<T> values(NumElements(of));
    // In float, so that the numbers of both types are equal.
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(around + std::sin(static_cast<float>(step * i)));
    }
    return MakeTensor<T>(of, values);
  };
  const Tensor x = numbers(dims, center, 1), scale = numbers({channels}, 2, 3);
  const Tensor bias = numbers({channels}, 0, 2), zeros = numbers({channels}, 0, 0);
  const AttrValues attrs = {{"data_layout", std::string(layout)}};
  auto norm = *RunOp(
      "batch_norm",
      {{"X", {x}}, {"Scale", {scale}}, {"Bias", {bias}}, {"Mean", {zeros}}, {"Variance", {zeros}}},
      attrs,
      {{"Y", 1}, {"SavedMean", 1}, {"SavedVariance", 1}, {"MeanOut", 1}, {"VarianceOut", 1}});
  auto gradient = *RunOp("batch_norm_grad",
                         {{"X", {x}},
                          {"Scale", {scale}},
                          {"SavedMean", norm["SavedMean"]},
                          {"SavedVariance", norm["SavedVariance"]},
                          {"Y@GRAD", {numbers(dims, 0, 5)}}},
                         attrs, {{"X@GRAD", 1}, {"Scale@GRAD", 1}, {"Bias@GRAD", 1}});
  std::vector<T> all;
  for (const Tensor* tensor : {&norm["Y"][0], &gradient["X@GRAD"][0], &gradient["Scale@GRAD"][0],
                               &gradient["Bias@GRAD"][0]}) {
    const std::vector<T> values = Values<T>(*tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(BatchNormOfLayoutsTest, SinglePrecisionIsCloseToDouble) {
  for (const char* layout : {"NHWC", "NCHW"}) {
    for (const double center : {0, 1000}) {
      const std::vector<float> found = NormAndGradient<float>({5, 6, 7, 4}, layout, center);
      const std::vector<double> expected = NormAndGradient<double>({5, 6, 7, 4}, layout, center);
      // The op keeps the mean in single precision.
      EXPECT_THAT(found, Pointwise(FloatNear(center == 0 ? 3e-5f : 3e-3f), expected))
          << layout << " around " << center;
    }
  }
}

TEST(BatchNormOfLayoutsTest, ResultsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const char* layout : {"NHWC", "NCHW"}) {
    for (const Dims& dims : {Dims{9, 7, 31, 33}, Dims{9, 33, 31, 7}, Dims{2, 3, 4, 3000}}) {
      const std::vector<float> expected = NormAndGradient<float>(dims, layout, 1);
      for (const int threads : {2, 3}) {
        SetKernelThreads(threads);
        EXPECT_TRUE(NormAndGradient<float>(dims, layout, 1) == expected)
            << layout << " " << threads;
      }
      SetKernelThreads(1);
    }
  }
}

}  // namespace
}  // namespace weft::testing
