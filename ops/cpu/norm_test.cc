// Normalization, beyond what op_vectors_test compares with Paddle's numbers.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

TEST(GroupNormTest, ChannelsMayComeLast) {
  const Tensor scale = Floats({4}, {1, 2, 3, 4}), bias = Floats({4}, {0, 0, 1, 1});
  const Tensor first = Floats({1, 4, 1, 2}, {1, 5, 2, 4, -3, 0, 9, 2});
  const Tensor last = Floats({1, 1, 2, 4}, {1, 2, -3, 9, 5, 4, 0, 2});
  const auto run = [&](const Tensor& x, const char* layout) {
    return RunOp("group_norm", {{"X", {x}}, {"Scale", {scale}}, {"Bias", {bias}}},
                 {{"groups", 2}, {"data_layout", std::string(layout)}},
                 {{"Y", 1}, {"Mean", 1}, {"Variance", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto a, run(first, "NCHW"));
  WEFT_ASSERT_OK_AND_ASSIGN(auto b, run(last, "NHWC"));
  EXPECT_EQ(Values<float>(a["Mean"][0]), Values<float>(b["Mean"][0]));
  const std::vector<float> y = Values<float>(a["Y"][0]), z = Values<float>(b["Y"][0]);
  for (int c = 0; c < 4; ++c) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(y[c * 2 + i], z[i * 4 + c]) << c << " " << i;
  }
}

TEST(GroupNormTest, ResultsHaveTheSameBitsOnAnyNumberOfThreads) {
  const Dims dims = {5, 6, 30, 40};
  std::vector<float> x(NumElements(dims)), dy(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i));
    dy[i] = std::cos(static_cast<float>(3 * i));
  }
  for (const char* layout : {"NCHW", "NHWC"}) {
    const int64_t channels = std::string(layout) == "NCHW" ? 6 : 40;
    const Tensor scale = Floats({channels}, {x.begin() + 100, x.begin() + 100 + channels});
    const AttrValues attrs = {{"groups", 2}, {"data_layout", std::string(layout)}};
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      SetKernelThreads(threads);
      SlotTensors inputs = {{"X", {Floats(dims, x)}}, {"Scale", {scale}}};
      auto norm = *RunOp("group_norm", inputs, attrs, {{"Y", 1}, {"Mean", 1}, {"Variance", 1}});
      for (const char* slot : {"Y", "Mean", "Variance"}) inputs.push_back({slot, norm[slot]});
      inputs.push_back({"Y@GRAD", {Floats(dims, dy)}});
      auto grad = *RunOp("group_norm_grad", inputs, attrs, {{"X@GRAD", 1}, {"Scale@GRAD", 1}});
      std::vector<float>& all = results.emplace_back();
      for (const Tensor* tensor :
           {&norm["Y"][0], &norm["Variance"][0], &grad["X@GRAD"][0], &grad["Scale@GRAD"][0]}) {
        const std::vector<float> values = Values<float>(*tensor);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    SetKernelThreads(1);
    EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]) << layout;
  }
}

TEST(LayerNormTest, RowsWithoutElementsHaveMomentsOfZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("layer_norm", {{"X", {Floats({2, 0}, {})}}}, {},
                                            {{"Y", 1}, {"Mean", 1}, {"Variance", 1}}));
  EXPECT_THAT(Values<float>(out["Mean"][0]), Each(0));
}

// Single precision, by oneDNN, against double precision in plain loops.
TEST(LayerNormTest, UnreadGradientsDoNotAffectOthers) {
  const std::vector<double> x = {100, 101, 103, -7, 2, 8}, dy = {1, -2, 4, 0.5, 3, -1};
  const auto gradients = [&](auto tensor, const std::vector<std::string>& wanted) {
    const auto norm = RunOp("layer_norm",
                            {{"X", {tensor({2, 3}, x)}},
                             {"Scale", {tensor({3}, {1, 2, -1})}},
                             {"Bias", {tensor({3}, {0, 1, 2})}}},
                            {{"begin_norm_axis", 1}}, {{"Y", 1}, {"Mean", 1}, {"Variance", 1}});
    EXPECT_TRUE(norm.ok()) << norm.status();
    SlotCounts outputs;
    for (const std::string& slot : wanted) outputs.push_back({slot, 1});
    return *RunOp("layer_norm_grad",
                  {{"X", {tensor({2, 3}, x)}},
                   {"Scale", {tensor({3}, {1, 2, -1})}},
                   {"Bias", {tensor({3}, {0, 1, 2})}},
                   {"Mean", norm->at("Mean")},
                   {"Variance", norm->at("Variance")},
                   {"Y@GRAD", {tensor({2, 3}, dy)}}},
                  {{"begin_norm_axis", 1}}, outputs);
  };
  const std::vector<std::string> all = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"};
  const auto floats = [](const Dims& dims, const std::vector<double>& values) {
    return Floats(dims, {values.begin(), values.end()});
  };
  const auto doubles = [](const Dims& dims, const std::vector<double>& values) {
    return MakeTensor<double>(dims, values);
  };
  auto expected = gradients(doubles, all);
  for (const std::vector<std::string>& wanted :
       {all, {"X@GRAD"}, {"Scale@GRAD"}, {"Bias@GRAD"}, {"X@GRAD", "Bias@GRAD"}}) {
    auto found = gradients(floats, wanted);
    for (const std::string& slot : wanted) {
      EXPECT_THAT(Values<float>(found[slot][0]),
                  Pointwise(FloatNear(1e-5f), Values<double>(expected[slot][0])))
          << slot;
    }
  }
}

// oneDNN sums in single precision.
TEST(LayerNormTest, RowsFarFromZero) {
  constexpr int64_t kWidth = 768;
  std::vector<float> x(kWidth);
  std::vector<double> wide(kWidth);
  for (int64_t i = 0; i < kWidth; ++i) wide[i] = x[i] = 1000.0f + static_cast<float>(i % 7) - 3;
  const auto y = [](Tensor tensor) {
    return (*RunOp("layer_norm", {{"X", {std::move(tensor)}}}, {{"begin_norm_axis", 1}},
                   {{"Y", 1}, {"Mean", 1}, {"Variance", 1}}))["Y"][0];
  };
  EXPECT_THAT(
      Values<float>(y(Floats({1, kWidth}, x))),
      Pointwise(FloatNear(2e-5f), Values<double>(y(MakeTensor<double>({1, kWidth}, wide)))));
}

TEST(LayerNormTest, WithoutScaleAndBiasIsAsWithOnesAndZeros) {
  const Tensor x = Floats({2, 3}, {1, 5, 3, -7, 2, 8}), dy = Floats({2, 3}, {1, -2, 4, 0.5, 3, -1});
  const Tensor ones = Floats({3}, {1, 1, 1}), zeros = Floats({3}, {0, 0, 0});
  const auto run = [&](SlotTensors weights) {
    SlotTensors inputs = weights;
    inputs.push_back({"X", {x}});
    auto norm = RunOp("layer_norm", inputs, {{"begin_norm_axis", 1}},
                      {{"Y", 1}, {"Mean", 1}, {"Variance", 1}});
    EXPECT_TRUE(norm.ok()) << norm.status();
    for (const char* slot : {"Mean", "Variance"}) inputs.push_back({slot, norm->at(slot)});
    inputs.push_back({"Y@GRAD", {dy}});
    auto grad = RunOp("layer_norm_grad", inputs, {{"begin_norm_axis", 1}}, {{"X@GRAD", 1}});
    EXPECT_TRUE(grad.ok()) << grad.status();
    return std::make_pair(Values<float>(norm->at("Y")[0]), Values<float>(grad->at("X@GRAD")[0]));
  };
  EXPECT_EQ(run({}), run({{"Scale", {ones}}, {"Bias", {zeros}}}));
}

TEST(InstanceNormTest, ImagesMayHaveNoChannels) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("instance_norm", {{"X", {Floats({2, 0, 2}, {})}}}, {},
                                            {{"Y", 1}, {"SavedMean", 1}, {"SavedVariance", 1}}));
  EXPECT_EQ(out["Y"][0].size(), 0);
  EXPECT_EQ(out["SavedMean"][0].size(), 0);
}

}  // namespace
}  // namespace weft::testing
