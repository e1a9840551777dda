// Pooling where Paddle's CPU kernels are not a reference.
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/threads.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

// Out and X@GRAD, the latter by a gradient of ones, of an image fp32[1, 1, 2, 3] or fp32[1, 2, 3,
// 1].
struct Pooled {
  std::vector<float> out, gradient;
};
absl::StatusOr<Pooled> Pool(AttrValues attrs, bool quirks = false) {
  Tensor x = Floats({1, 1, 2, 3}, {1, 5, 2, 5, 3, 7}), out, dout, dx;
  for (const auto& attr : attrs) {
    if (attr.first == "data_format") x = Floats({1, 2, 3, 1}, {1, 5, 2, 5, 3, 7});
  }
  auto forward = OpRunner::Make("pool2d", {{"X", {&x}}}, attrs, {{"Out", {&out}}}, quirks);
  if (!forward.ok()) return forward.status();
  absl::Status status = forward->Run();
  if (!status.ok()) return status;
  dout = Floats(out.dims(), std::vector<float>(out.size(), 1));
  auto backward =
      OpRunner::Make("pool2d_grad", {{"X", {&x}}, {"Out", {&out}}, {"Out@GRAD", {&dout}}}, attrs,
                     {{"X@GRAD", {&dx}}}, quirks);
  if (!backward.ok()) return backward.status();
  status = backward->Run();
  if (!status.ok()) return status;
  return Pooled{Values<float>(out), Values<float>(dx)};
}

TEST(PoolTest, AdaptiveMaximaAreOfWindowsThatCoverTheImage) {
  const AttrValues attrs = {
      {"adaptive", true}, {"ksize", Ints{1, 2}}, {"pooling_type", std::string("max")}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Pooled pooled, Pool(attrs));
  EXPECT_THAT(pooled.out, ElementsAre(5, 7));  // columns 0 and 1, 1 and 2
  EXPECT_THAT(pooled.gradient, ElementsAre(0, 1, 0, 0, 0, 1));
  // Paddle uses `ksize` as the size of a window.
  WEFT_ASSERT_OK_AND_ASSIGN(const Pooled paddles, Pool(attrs, /*quirks=*/true));
  EXPECT_THAT(paddles.out, ElementsAre(5, 5));
}

// The root of the sum of squares, with channels last, and the maximum, as Paddle 3.3.1 has them.
TEST(PoolTest, NormsHaveTheirSlopes) {
  const auto pool = [](float norm_type, bool channels_last) -> std::vector<std::vector<float>> {
    const AttrValues attrs = {{"kernel_size", Ints{2, 2}},
                              {"norm_type", norm_type},
                              {"data_format", std::string(channels_last ? "NHWC" : "NCHW")}};
    const Dims dims = channels_last ? Dims{1, 2, 3, 1} : Dims{1, 1, 2, 3};
    const Tensor x = Floats(dims, {1, -5, 2, 5, 7, 3});
    auto forward = RunOp("lp_pool2d", {{"x", {x}}}, attrs, {{"out", 1}});
    WEFT_EXPECT_OK(forward.status());
    if (!forward.ok()) return {};
    const Tensor out = (*forward)["out"][0];
    auto backward = RunOp("lp_pool2d_grad",
                          {{"x", {x}}, {"out", {out}}, {"out@GRAD", {Floats(out.dims(), {1, 10})}}},
                          attrs, {{"x@GRAD", 1}});
    WEFT_EXPECT_OK(backward.status());
    if (!backward.ok()) return {};
    return {Values<float>(out), Values<float>((*backward)["x@GRAD"][0])};
  };
  const float first = std::sqrt(100.0F), second = std::sqrt(87.0F);
  for (const bool channels_last : {false, true}) {
    const auto norms = pool(2, channels_last);
    ASSERT_EQ(norms.size(), 2u);
    EXPECT_THAT(norms[0], Pointwise(FloatEq(), {first, second}));
    EXPECT_THAT(norms[1],
                Pointwise(FloatNear(1e-5F), {1 / first, -5 / first - 50 / second, 20 / second,
                                             5 / first, 7 / first + 70 / second, 30 / second}));
    const auto maxima = pool(std::numeric_limits<float>::infinity(), channels_last);
    EXPECT_THAT(maxima, ElementsAre(ElementsAre(7, 7), ElementsAre(0, 0, 0, 0, 11, 0)));
  }
}

TEST(PoolTest, ANormOfDegreeZeroIsAnError) {
  EXPECT_THAT(RunOp("lp_pool2d", {{"x", {Floats({1, 1, 2, 2}, {1, 2, 3, 4})}}},
                    {{"kernel_size", Ints{2, 2}}, {"norm_type", 0.0F}}, {{"out", 1}}),
              IsInvalidArgument("attribute norm_type"));
}

TEST(PoolTest, ChannelsMayComeLast) {
  const AttrValues attrs = {{"data_format", std::string("NHWC")},
                            {"ksize", Ints{2, 2}},
                            {"pooling_type", std::string("avg")}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Pooled pooled, Pool(attrs));
  EXPECT_THAT(pooled.out, ElementsAre(3.5, 4.25));
  EXPECT_THAT(pooled.gradient, ElementsAre(0.25, 0.5, 0.25, 0.25, 0.5, 0.25));
}

// oneDNN's kernels for the two layouts differ, and so may memory for reordered images.
TEST(PoolTest, WhereChannelsAreDoesNotMatter) {
  constexpr int64_t kBatch = 2, kChannels = 11, kHeight = 7, kWidth = 6, kOut = 4 * 3;
  // X, or anything else, of `pixels` pixels, with channels last.
  const auto last = [](const std::vector<float>& first, int64_t pixels) {
    std::vector<float> result;
    for (int64_t n = 0; n < kBatch; ++n) {
      for (int64_t i = 0; i < pixels; ++i) {
        for (int64_t c = 0; c < kChannels; ++c) {
          result.push_back(first[(n * kChannels + c) * pixels + i]);
        }
      }
    }
    return result;
  };
  std::vector<float> image, gradient;
  for (int i = 0; i < kBatch * kChannels * kHeight * kWidth; ++i)
    image.push_back(i * 37 % 101 - 50);
  for (int i = 0; i < kBatch * kChannels * kOut; ++i) gradient.push_back(i * 29 % 64);
  for (const char* type : {"max", "avg"}) {
    AttrValues attrs = {{"ksize", Ints{3, 2}},
                        {"strides", Ints{2, 2}},
                        {"paddings", Ints{1, 0}},
                        {"pooling_type", std::string(type)}};
    const auto pool = [&](Tensor x, const std::vector<float>& dy) {
      Tensor out, dx;
      auto forward = OpRunner::Make("pool2d", {{"X", {&x}}}, attrs, {{"Out", {&out}}});
      WEFT_EXPECT_OK(forward.status());
      WEFT_EXPECT_OK(forward->Run());
      Tensor dout = Floats(out.dims(), dy);
      auto backward =
          OpRunner::Make("pool2d_grad", {{"X", {&x}}, {"Out", {&out}}, {"Out@GRAD", {&dout}}},
                         attrs, {{"X@GRAD", {&dx}}});
      WEFT_EXPECT_OK(backward.status());
      WEFT_EXPECT_OK(backward->Run());
      return Pooled{Values<float>(out), Values<float>(dx)};
    };
    const Pooled channels_first =
        pool(Floats({kBatch, kChannels, kHeight, kWidth}, image), gradient);
    attrs.emplace_back("data_format", std::string("NHWC"));
    const Pooled channels_last =
        pool(Floats({kBatch, kHeight, kWidth, kChannels}, last(image, kHeight * kWidth)),
             last(gradient, kOut));
    EXPECT_THAT(last(channels_first.out, kOut), Pointwise(FloatEq(), channels_last.out)) << type;
    EXPECT_THAT(last(channels_first.gradient, kHeight * kWidth),
                Pointwise(FloatNear(1e-4), channels_last.gradient))
        << type;
  }
}

// X@GRAD of maxima with channels last, for numbers of which many are equal.
template <typename T>
std::vector<T> GradientOfMaxima(const Dims& dims, int size, int stride, int padding) {
  std::vector<T> x(NumElements(dims));
  for (size_t i = 0; i < x.size(); ++i) x[i] = i * i * 37 % 101 % 7;
  const AttrValues attrs = {{"data_format", std::string("NHWC")},
                            {"ksize", Ints{size, size}},
                            {"strides", Ints{stride, stride}},
                            {"paddings", Ints{padding, padding}},
                            {"pooling_type", std::string("max")}};
  const Tensor image = MakeTensor<T>(dims, x);
  auto out = *RunOp("pool2d", {{"X", {image}}}, attrs, {{"Out", 1}});
  std::vector<T> dout(out["Out"][0].size());
  for (size_t i = 0; i < dout.size(); ++i) dout[i] = static_cast<T>(i % 50) - 20;
  auto grad = *RunOp("pool2d_grad",
                     {{"X", {image}},
                      {"Out", out["Out"]},
                      {"Out@GRAD", {MakeTensor<T>(out["Out"][0].dims(), dout)}}},
                     attrs, {{"X@GRAD", 1}});
  return Values<T>(grad["X@GRAD"][0]);
}

TEST(PoolTest, GradientOfMaximaGoesToTheFirstOfEqualOnes) {
  for (int64_t channels = 1; channels <= 17; ++channels) {
    const Dims dims = {2, 7, 6, channels};
    for (const auto& [size, stride, padding] : std::vector<std::array<int, 3>>{
             {2, 2, 0}, {3, 3, 0}, {3, 3, 1}, {2, 3, 0}, {2, 2, 1}, {3, 2, 1}}) {
      const std::vector<double> expected = GradientOfMaxima<double>(dims, size, stride, padding);
      const std::vector<float> found = GradientOfMaxima<float>(dims, size, stride, padding);
      EXPECT_EQ(std::vector<double>(found.begin(), found.end()), expected)
          << channels << " channels, " << size << " by " << stride;
    }
  }
}

TEST(PoolTest, GradientOfMaximaHasTheSameBitsOnAnyNumberOfThreads) {
  const Dims dims = {7, 40, 40, 5};
  const std::vector<float> expected = GradientOfMaxima<float>(dims, 2, 2, 0);
  for (const int threads : {2, 3}) {
    SetKernelThreads(threads);
    EXPECT_TRUE(GradientOfMaxima<float>(dims, 2, 2, 0) == expected);
  }
  SetKernelThreads(1);
}

TEST(PoolTest, UnknownTypeIsAnError) {
  EXPECT_THAT(Pool({{"ksize", Ints{1, 1}}, {"pooling_type", std::string("min")}}),
              IsInvalidArgument("attribute pooling_type: expected max or avg, found min"));
}

}  // namespace
}  // namespace weft::testing
