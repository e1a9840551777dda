#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(Conv2dTest, WindowTakesPositionsByPaddingAndStride) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[64, 3, 7, 7], Input: fp32[-1, 3, 224, 224]) -> Output",
                    {{"paddings", Ints{3, 3}}, {"strides", Ints{2, 2}}}),
              IsOkAndHolds("Output: fp32[-1, 64, 112, 112]"));
}

TEST(Conv2dTest, PaddingsCanDifferOnEachSide) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 10, 20]) -> Output",
                    {{"paddings", Ints{0, 1, 2, 2}}}),
              IsOkAndHolds("Output: fp32[1, 8, 9, 22]"));
}

TEST(Conv2dTest, DilationSpreadsTheWindow) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 10, 10]) -> Output",
                    {{"dilations", Ints{2, 3}}}),
              IsOkAndHolds("Output: fp32[1, 8, 6, 4]"));
}

TEST(Conv2dTest, SamePaddingKeepsTheSizeByStride) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 10, 11]) -> Output",
                    {{"padding_algorithm", std::string("SAME")}, {"strides", Ints{2, 2}}}),
              IsOkAndHolds("Output: fp32[1, 8, 5, 6]"));
}

TEST(Conv2dTest, ValidPaddingIsNone) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 10, 10]) -> Output",
                    {{"padding_algorithm", std::string("VALID")}, {"paddings", Ints{5, 5}}}),
              IsOkAndHolds("Output: fp32[1, 8, 8, 8]"));
}

TEST(Conv2dTest, ChannelsCanBeLast) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[-1, 10, 12, 3]) -> Output",
                    {{"data_format", std::string("NHWC")}}),
              IsOkAndHolds("Output: fp32[-1, 8, 10, 8]"));
}

TEST(Conv2dTest, UnknownSizesStayUnknown) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[-1, 3, -1, 10]) -> Output"),
              IsOkAndHolds("Output: fp32[-1, 8, -1, 8]"));
}

TEST(Conv2dTest, GroupsShareTheInputChannels) {
  EXPECT_THAT(
      Infer("conv2d(Filter: fp32[8, 2, 3, 3], Input: fp32[1, 4, 3, 3]) -> Output", {{"groups", 2}}),
      IsOkAndHolds("Output: fp32[1, 8, 1, 1]"));
}

TEST(Conv2dTest, FilterOfOtherChannelsIsAnError) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 4, 3, 3], Input: fp32[1, 3, 10, 10]) -> Output"),
              IsInvalidArgument("op 0 (conv2d) input Filter (Filter_0): expected dimension 1 of 3 "
                                "input channels / 1 groups, found fp32[8, 4, 3, 3]"));
  EXPECT_THAT(
      Infer("conv2d(Filter: fp32[9, 2, 3, 3], Input: fp32[1, 4, 9, 9]) -> Output", {{"groups", 2}}),
      IsInvalidArgument("expected dimension 0 a multiple of 2 groups"));
}

TEST(Conv2dTest, WindowLargerThanTheImageIsAnError) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 2, 10]) -> Output"),
              IsInvalidArgument("input Input (Input_0): expected an image that, padded, is at "
                                "least as large as the window, 3 x 3"));
}

TEST(Conv2dTest, ImageMustHaveFourDimensions) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[3, 10, 10]) -> Output"),
              IsInvalidArgument("input Input (Input_0): expected four dimensions (batch, channels, "
                                "height, width), found fp32[3, 10, 10]"));
}

TEST(Conv2dTest, BadAttributesAreErrors) {
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 9, 9]) -> Output",
                    {{"strides", Ints{0, 1}}}),
              IsInvalidArgument("attribute strides: expected two positive numbers, found [0, 1]"));
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 9, 9]) -> Output",
                    {{"paddings", Ints{1}}}),
              IsInvalidArgument("attribute paddings: expected two or four numbers, found [1]"));
  EXPECT_THAT(
      Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 9, 9]) -> Output", {{"groups", 0}}),
      IsInvalidArgument("attribute groups: expected 1 or more, found 0"));
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 9, 9]) -> Output",
                    {{"padding_algorithm", std::string("FULL")}}),
              IsInvalidArgument(
                  "attribute padding_algorithm: expected EXPLICIT, SAME or VALID, found FULL"));
  EXPECT_THAT(Infer("conv2d(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 3, 9, 9]) -> Output",
                    {{"data_format", std::string("CHW")}}),
              IsInvalidArgument("attribute data_format: expected NCHW or NHWC, found CHW"));
}

TEST(Conv2dTest, GradientsAreLikeTheInputs) {
  EXPECT_THAT(Infer("conv2d_grad(Filter: fp32[8, 3, 3, 3], Input: fp32[-1, 3, 9, 9], Output@GRAD: "
                    "fp32[-1, 8, 7, 7]) -> Filter@GRAD, Input@GRAD"),
              IsOkAndHolds("Filter@GRAD: fp32[8, 3, 3, 3], Input@GRAD: fp32[-1, 3, 9, 9]"));
}

TEST(Conv2dTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(Infer("conv2d_grad(Filter: fp32[8, 3, 3, 3], Input: fp32[-1, 3, 9, 9], Output@GRAD: "
                    "fp32[-1, 8, 9, 9]) -> Filter@GRAD"),
              IsInvalidArgument("input Output@GRAD (Output@GRAD_0): expected fp32[-1, 8, 7, 7] as "
                                "Output, found fp32[-1, 8, 9, 9]"));
}

TEST(Conv2dTest, GradientOfAnotherElementTypeIsAnError) {
  for (const char* type : {"conv2d_grad", "conv2d_transpose_grad"}) {
    EXPECT_THAT(Infer(absl::StrCat(type,
                                   "(Filter: fp16[3, 3, 1, 1], Input: fp16[2, 3, 9, 9], "
                                   "Output@GRAD: fp32[2, 3, 9, 9]) -> Filter@GRAD")),
                IsInvalidArgument("input Output@GRAD (Output@GRAD_0): expected fp16[2, 3, 9, 9] as "
                                  "Output, found fp32[2, 3, 9, 9]"));
  }
}

TEST(Pool2dTest, WindowTakesPositionsByStride) {
  EXPECT_THAT(
      Infer("pool2d(X: fp32[-1, 64, 112, 112]) -> Out", {{"paddings", Ints{1, 1}},
                                                         {"strides", Ints{2, 2}},
                                                         {"pooling_type", std::string("max")},
                                                         {"ksize", Ints{3, 3}}}),
      IsOkAndHolds("Out: fp32[-1, 64, 56, 56]"));
}

TEST(Pool2dTest, CeilModeCountsTheLastPartOfAWindow) {
  EXPECT_THAT(
      Infer("pool2d(X: fp32[1, 2, 8, 8]) -> Out",
            {{"strides", Ints{2, 2}}, {"pooling_type", std::string("max")}, {"ksize", Ints{3, 3}}}),
      IsOkAndHolds("Out: fp32[1, 2, 3, 3]"));
  EXPECT_THAT(Infer("pool2d(X: fp32[1, 2, 8, 8]) -> Out", {{"strides", Ints{2, 2}},
                                                           {"ceil_mode", true},
                                                           {"pooling_type", std::string("max")},
                                                           {"ksize", Ints{3, 3}}}),
              IsOkAndHolds("Out: fp32[1, 2, 4, 4]"));
}

TEST(Pool2dTest, AdaptivePoolingGivesTheSizeOfTheWindow) {
  EXPECT_THAT(
      Infer("pool2d(X: fp32[-1, 2, 8, 9]) -> Out",
            {{"adaptive", true}, {"ksize", Ints{1, 2}}, {"pooling_type", std::string("max")}}),
      IsOkAndHolds("Out: fp32[-1, 2, 1, 2]"));
}

TEST(Pool2dTest, GlobalPoolingGivesOneElement) {
  EXPECT_THAT(Infer("pool2d(X: fp32[-1, 2, 8, 9]) -> Out", {{"global_pooling", true},
                                                            {"pooling_type", std::string("max")},
                                                            {"ksize", Ints{3, 3}}}),
              IsOkAndHolds("Out: fp32[-1, 2, 1, 1]"));
}

TEST(Pool2dTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      Infer("pool2d_grad(Out: fp32[1, 2, 4, 4], Out@GRAD: fp32[1, 2, 5, 4], X: fp32[1, 2, 8, 8]) "
            "-> X@GRAD",
            {{"pooling_type", std::string("max")}, {"ksize", Ints{2, 2}}, {"strides", Ints{2, 2}}}),
      IsInvalidArgument("input Out@GRAD (Out@GRAD_0): expected fp32[1, 2, 4, 4] that X is "
                        "pooled to, found fp32[1, 2, 5, 4]"));
}

TEST(Pool2dTest, GradientOfAnotherElementTypeIsAnError) {
  EXPECT_THAT(
      Infer("pool2d_grad(Out: fp32[1, 2, 4, 4], Out@GRAD: fp16[1, 2, 4, 4], X: fp32[1, 2, 8, 8]) "
            "-> X@GRAD",
            {{"pooling_type", std::string("max")}, {"ksize", Ints{2, 2}}, {"strides", Ints{2, 2}}}),
      IsInvalidArgument("input Out@GRAD (Out@GRAD_0): expected fp32[1, 2, 4, 4] that X is "
                        "pooled to, found fp16[1, 2, 4, 4]"));
}

TEST(MaxPoolWithIndexTest, GradientReadsAMaskThatIsDeclaredAsTheImage) {
  EXPECT_THAT(Infer("max_pool2d_with_index_grad(Mask: fp32[1, 2, 4, 4], Out@GRAD: fp32[1, 2, 4, "
                    "4], X: fp32[1, 2, 8, 8]) -> X@GRAD",
                    {{"ksize", Ints{2, 2}}, {"strides", Ints{2, 2}}}),
              IsOkAndHolds("X@GRAD: fp32[1, 2, 8, 8]"));
}

TEST(MaxPoolWithIndexTest, MaskIsLikeOut) {
  EXPECT_THAT(Infer("max_pool2d_with_index(X: fp32[-1, 2, 8, 9]) -> Mask, Out",
                    {{"ksize", Ints{2, 3}}, {"strides", Ints{2, 3}}}),
              IsOkAndHolds("Mask: int32[-1, 2, 4, 3], Out: fp32[-1, 2, 4, 3]"));
}

TEST(Conv3dTest, WindowsSlideInThreeDimensions) {
  EXPECT_THAT(Infer("conv3d(Filter: fp32[4, 2, 1, 3, 3], Input: fp32[-1, 2, 5, 6, 7]) -> Output",
                    {{"strides", Ints{1, 1, 2}}}),
              IsOkAndHolds("Output: fp32[-1, 4, 5, 4, 3]"));
  EXPECT_THAT(
      Infer("conv3d(Filter: fp32[4, 2, 1, 3, 3], Input: fp32[-1, 2, 6, 7]) -> Output"),
      IsInvalidArgument("expected five dimensions (batch, channels, depth, height, width)"));
}

TEST(Conv2dTransposeTest, OutputShrinksToTheInputByConvolution) {
  EXPECT_THAT(
      Infer("conv2d_transpose(Filter: fp32[8, 3, 4, 4], Input: fp32[-1, 8, 5, 6]) -> Output",
            {{"groups", 2}, {"paddings", Ints{1, 1}}, {"strides", Ints{2, 2}}}),
      IsOkAndHolds("Output: fp32[-1, 6, 10, 12]"));
}

TEST(Conv2dTransposeTest, OutputPaddingIsLessThanAStride) {
  EXPECT_THAT(Infer("conv2d_transpose(Filter: fp32[8, 3, 3, 3], Input: fp32[1, 8, 5, 5]) -> Output",
                    {{"output_padding", Ints{2, 0}}, {"strides", Ints{2, 2}}}),
              IsInvalidArgument("attribute output_padding: expected 0 to 1, found 2"));
}

TEST(Conv2dTransposeTest, FilterMustFitTheChannels) {
  EXPECT_THAT(
      Infer("conv2d_transpose(Filter: fp32[4, 3, 3, 3], Input: fp32[1, 8, 5, 5]) -> Output"),
      IsInvalidArgument("input Filter (Filter_0): expected dimension 0 of 8 channels"));
}

}  // namespace
}  // namespace weft::testing
