// Convolution in single precision (oneDNN) against double precision (a plain loop). op_vectors_test
// compares with Paddle's numbers.
#include <cmath>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

// Numbers between -1 and 1 without a short period.
template <typename T>
Tensor Noise(const Dims& dims, double start) {
  std::vector<T> values(NumElements(dims));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(static_cast<float>(std::sin(start + 1.7 * i)));
  }
  return MakeTensor<T>(dims, values);
}

struct ConvCase {
  std::string op;
  Dims input, filter, output;
  AttrValues attrs;
};

template <typename T>
std::vector<std::vector<T>> Results(const ConvCase& c) {
  const Tensor input = Noise<T>(c.input, 0.1), filter = Noise<T>(c.filter, 0.2);
  auto forward = RunOp(c.op, {{"Input", {input}}, {"Filter", {filter}}}, c.attrs, {{"Output", 1}});
  EXPECT_THAT(forward, IsOk());
  if (!forward.ok()) return {};
  EXPECT_EQ((*forward)["Output"][0].dims(), c.output);
  auto backward =
      RunOp(c.op + "_grad",
            {{"Input", {input}}, {"Filter", {filter}}, {"Output@GRAD", {Noise<T>(c.output, 0.3)}}},
            c.attrs, {{"Input@GRAD", 1}, {"Filter@GRAD", 1}});
  EXPECT_THAT(backward, IsOk());
  if (!backward.ok()) return {};
  return {Values<T>((*forward)["Output"][0]), Values<T>((*backward)["Input@GRAD"][0]),
          Values<T>((*backward)["Filter@GRAD"][0])};
}

void ExpectPrecisionsAgree(const ConvCase& c) {
  SCOPED_TRACE(c.op);
  const auto single_results = Results<float>(c);
  const auto double_results = Results<double>(c);
  ASSERT_EQ(single_results.size(), double_results.size());
  for (size_t k = 0; k < single_results.size(); ++k) {
    ASSERT_EQ(single_results[k].size(), double_results[k].size());
    for (size_t i = 0; i < single_results[k].size(); ++i) {
      EXPECT_NEAR(single_results[k][i], double_results[k][i], 2e-5) << k << " " << i;
    }
  }
}

TEST(ConvTest, OneDnnComputesWhatThePlainLoopDoes) {
  ExpectPrecisionsAgree({"conv2d",
                         {2, 16, 9, 8},
                         {32, 16, 3, 3},
                         {2, 32, 5, 8},
                         {{"strides", Ints{2, 1}}, {"paddings", Ints{1, 1}}}});
  ExpectPrecisionsAgree({"conv2d",
                         {2, 9, 8, 6},
                         {4, 3, 3, 2},
                         {2, 5, 8, 4},
                         {{"data_format", std::string("NHWC")},
                          {"groups", 2},
                          {"dilations", Ints{2, 1}},
                          {"paddings", Ints{0, 0, 0, 1}}}});
  ExpectPrecisionsAgree(
      {"depthwise_conv2d",
       {1, 8, 6, 6},
       {8, 1, 3, 3},
       {1, 8, 3, 3},
       {{"groups", 8}, {"strides", Ints{2, 2}}, {"padding_algorithm", std::string("SAME")}}});
  ExpectPrecisionsAgree({"conv3d",
                         {1, 4, 4, 5, 6},
                         {6, 2, 2, 3, 3},
                         {1, 6, 3, 5, 2},
                         {{"groups", 2}, {"strides", Ints{1, 1, 2}}, {"paddings", Ints{0, 1, 0}}}});
  ExpectPrecisionsAgree({"conv2d_transpose",
                         {2, 4, 3, 4},
                         {4, 3, 3, 3},
                         {2, 6, 6, 6},
                         {{"groups", 2},
                          {"strides", Ints{2, 1}},
                          {"paddings", Ints{1, 0}},
                          {"output_padding", Ints{1, 0}}}});
}

// The window skips more than a stride at the end of the larger image, which oneDNN does not
// support.
TEST(ConvTest, OutputPaddingMayBeLargerThanTheStride) {
  ExpectPrecisionsAgree({"conv2d_transpose",
                         {1, 2, 3, 3},
                         {2, 2, 2, 2},
                         {1, 2, 6, 5},
                         {{"dilations", Ints{2, 2}}, {"output_padding", Ints{1, 0}}}});
}

TEST(ConvTest, OutputSizeChoosesAmongThoseThatFit) {
  ExpectPrecisionsAgree({"conv2d_transpose",
                         {1, 2, 3, 3},
                         {2, 2, 3, 3},
                         {1, 2, 8, 7},
                         {{"strides", Ints{2, 2}}, {"output_size", Ints{8, 7}}}});
  EXPECT_THAT(RunOp("conv2d_transpose",
                    {{"Input", {Noise<float>({1, 2, 3, 3}, 0)}},
                     {"Filter", {Noise<float>({2, 2, 3, 3}, 0)}}},
                    {{"strides", Ints{2, 2}}, {"output_size", Ints{9, 7}}}, {{"Output", 1}}),
              IsInvalidArgument("attribute output_size: expected 7 to 8, found 9"));
}

TEST(ConvTest, AnEmptyBatchGivesAFilterGradientOfZeros) {
  const auto results = Results<float>({"conv2d", {0, 2, 3, 3}, {1, 2, 3, 3}, {0, 1, 1, 1}, {}});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_THAT(results[2], Each(0));
}

TEST(ConvTest, ShapesMayChangeFromStepToStep) {
  Tensor input, filter = Noise<float>({1, 1, 2, 2}, 0), output;
  WEFT_ASSERT_OK_AND_ASSIGN(
      OpRunner conv, OpRunner::Make("conv2d", {{"Input", {&input}}, {"Filter", {&filter}}}, {},
                                    {{"Output", {&output}}}));
  for (int64_t size : {3, 5, 3}) {
    input = Noise<float>({1, 1, size, size}, 0);
    WEFT_ASSERT_OK(conv.Run());
    EXPECT_EQ(output.dims(), (Dims{1, 1, size - 1, size - 1}));
  }
}

TEST(ConvTest, NegativePaddingsAreAnError) {
  EXPECT_THAT(RunOp("conv2d",
                    {{"Input", {Noise<float>({1, 1, 3, 3}, 0)}},
                     {"Filter", {Noise<float>({1, 1, 2, 2}, 0)}}},
                    {{"paddings", Ints{-1, 0}}}, {{"Output", 1}}),
              IsInvalidArgument("attribute paddings: expected no negative number"));
}

}  // namespace
}  // namespace weft::testing
