#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(Conv2dTest, WindowTakesPositionsByPaddingAndStride) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[64, 3, 7, 7]"})
                  .In("Input", {"fp32[-1, 3, 224, 224]"})
                  .Out("Output")
                  .Attr("paddings", std::vector<int32_t>{3, 3})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[-1, 64, 112, 112]"))));
}

TEST(Conv2dTest, PaddingsCanDifferOnEachSide) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 10, 20]"})
                  .Out("Output")
                  .Attr("paddings", std::vector<int32_t>{0, 1, 2, 2})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[1, 8, 9, 22]"))));
}

TEST(Conv2dTest, DilationSpreadsTheWindow) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 10, 10]"})
                  .Out("Output")
                  .Attr("dilations", std::vector<int32_t>{2, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[1, 8, 6, 4]"))));
}

TEST(Conv2dTest, SamePaddingKeepsTheSizeByStride) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 10, 11]"})
                  .Out("Output")
                  .Attr("padding_algorithm", std::string("SAME"))
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[1, 8, 5, 6]"))));
}

TEST(Conv2dTest, ValidPaddingIsNone) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 10, 10]"})
                  .Out("Output")
                  .Attr("padding_algorithm", std::string("VALID"))
                  .Attr("paddings", std::vector<int32_t>{5, 5})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[1, 8, 8, 8]"))));
}

TEST(Conv2dTest, ChannelsCanBeLast) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[-1, 10, 12, 3]"})
                  .Out("Output")
                  .Attr("data_format", std::string("NHWC"))
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[-1, 8, 10, 8]"))));
}

TEST(Conv2dTest, UnknownSizesStayUnknown) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[-1, 3, -1, 10]"})
                  .Out("Output")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[-1, 8, -1, 8]"))));
}

TEST(Conv2dTest, GroupsShareTheInputChannels) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 2, 3, 3]"})
                  .In("Input", {"fp32[1, 4, 3, 3]"})
                  .Out("Output")
                  .Attr("groups", 2)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[1, 8, 1, 1]"))));
}

TEST(Conv2dTest, FilterOfOtherChannelsIsAnError) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 4, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 10, 10]"})
                  .Out("Output")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (conv2d) input Filter (Filter_0): expected dimension 1 of 3 "
                                 "input channels / 1 groups, found fp32[8, 4, 3, 3]")));
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[9, 2, 3, 3]"})
                  .In("Input", {"fp32[1, 4, 9, 9]"})
                  .Out("Output")
                  .Attr("groups", 2)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected dimension 0 a multiple of 2 groups")));
}

TEST(Conv2dTest, WindowLargerThanTheImageIsAnError) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 2, 10]"})
                  .Out("Output")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Input (Input_0): expected an image that, padded, is at "
                                 "least as large as the window, 3 x 3")));
}

TEST(Conv2dTest, ImageMustHaveFourDimensions) {
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[3, 10, 10]"})
                  .Out("Output")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Input (Input_0): expected four dimensions (batch, "
                                 "channels, height, width), found fp32[3, 10, 10]")));
}

TEST(Conv2dTest, BadAttributesAreErrors) {
  EXPECT_THAT(
      InferenceCase("conv2d")
          .In("Filter", {"fp32[8, 3, 3, 3]"})
          .In("Input", {"fp32[1, 3, 9, 9]"})
          .Out("Output")
          .Attr("strides", std::vector<int32_t>{0, 1})
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attribute strides: expected two positive numbers, found [0, 1]")));
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 9, 9]"})
                  .Out("Output")
                  .Attr("paddings", std::vector<int32_t>{1})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute paddings: expected two or four numbers, found [1]")));
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 9, 9]"})
                  .Out("Output")
                  .Attr("groups", 0)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute groups: expected 1 or more, found 0")));
  EXPECT_THAT(
      InferenceCase("conv2d")
          .In("Filter", {"fp32[8, 3, 3, 3]"})
          .In("Input", {"fp32[1, 3, 9, 9]"})
          .Out("Output")
          .Attr("padding_algorithm", std::string("FULL"))
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("attribute padding_algorithm: expected EXPLICIT, SAME or VALID, found FULL")));
  EXPECT_THAT(InferenceCase("conv2d")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 3, 9, 9]"})
                  .Out("Output")
                  .Attr("data_format", std::string("CHW"))
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute data_format: expected NCHW or NHWC, found CHW")));
}

TEST(Conv2dTest, GradientsAreLikeTheInputs) {
  EXPECT_THAT(InferenceCase("conv2d_grad")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[-1, 3, 9, 9]"})
                  .In("Output@GRAD", {"fp32[-1, 8, 7, 7]"})
                  .Out("Filter@GRAD")
                  .Out("Input@GRAD")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Filter@GRAD", "fp32[8, 3, 3, 3]"),
                                       Pair("Input@GRAD", "fp32[-1, 3, 9, 9]"))));
}

TEST(Conv2dTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(InferenceCase("conv2d_grad")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[-1, 3, 9, 9]"})
                  .In("Output@GRAD", {"fp32[-1, 8, 9, 9]"})
                  .Out("Filter@GRAD")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Output@GRAD (Output@GRAD_0): expected fp32[-1, 8, 7, 7] as "
                                 "Output, found fp32[-1, 8, 9, 9]")));
}

TEST(Conv2dTest, GradientOfAnotherElementTypeIsAnError) {
  for (const char* type : {"conv2d_grad", "conv2d_transpose_grad"}) {
    EXPECT_THAT(InferenceCase(type)
                    .In("Filter", {"fp16[3, 3, 1, 1]"})
                    .In("Input", {"fp16[2, 3, 9, 9]"})
                    .In("Output@GRAD", {"fp32[2, 3, 9, 9]"})
                    .Out("Filter@GRAD")
                    .Infer(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("input Output@GRAD (Output@GRAD_0): expected fp16[2, 3, 9, 9] "
                                   "as Output, found fp32[2, 3, 9, 9]")));
  }
}

TEST(Pool2dTest, WindowTakesPositionsByStride) {
  EXPECT_THAT(InferenceCase("pool2d")
                  .In("X", {"fp32[-1, 64, 112, 112]"})
                  .Out("Out")
                  .Attr("paddings", std::vector<int32_t>{1, 1})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Attr("pooling_type", std::string("max"))
                  .Attr("ksize", std::vector<int32_t>{3, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 64, 56, 56]"))));
}

TEST(Pool2dTest, CeilModeCountsTheLastPartOfAWindow) {
  EXPECT_THAT(InferenceCase("pool2d")
                  .In("X", {"fp32[1, 2, 8, 8]"})
                  .Out("Out")
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Attr("pooling_type", std::string("max"))
                  .Attr("ksize", std::vector<int32_t>{3, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[1, 2, 3, 3]"))));
  EXPECT_THAT(InferenceCase("pool2d")
                  .In("X", {"fp32[1, 2, 8, 8]"})
                  .Out("Out")
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Attr("ceil_mode", true)
                  .Attr("pooling_type", std::string("max"))
                  .Attr("ksize", std::vector<int32_t>{3, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[1, 2, 4, 4]"))));
}

TEST(Pool2dTest, AdaptivePoolingGivesTheSizeOfTheWindow) {
  EXPECT_THAT(InferenceCase("pool2d")
                  .In("X", {"fp32[-1, 2, 8, 9]"})
                  .Out("Out")
                  .Attr("adaptive", true)
                  .Attr("ksize", std::vector<int32_t>{1, 2})
                  .Attr("pooling_type", std::string("max"))
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 2, 1, 2]"))));
}

TEST(Pool2dTest, GlobalPoolingGivesOneElement) {
  EXPECT_THAT(InferenceCase("pool2d")
                  .In("X", {"fp32[-1, 2, 8, 9]"})
                  .Out("Out")
                  .Attr("global_pooling", true)
                  .Attr("pooling_type", std::string("max"))
                  .Attr("ksize", std::vector<int32_t>{3, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 2, 1, 1]"))));
}

TEST(Pool2dTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(InferenceCase("pool2d_grad")
                  .In("Out", {"fp32[1, 2, 4, 4]"})
                  .In("Out@GRAD", {"fp32[1, 2, 5, 4]"})
                  .In("X", {"fp32[1, 2, 8, 8]"})
                  .Out("X@GRAD")
                  .Attr("pooling_type", std::string("max"))
                  .Attr("ksize", std::vector<int32_t>{2, 2})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Out@GRAD (Out@GRAD_0): expected fp32[1, 2, 4, 4] that X is "
                                 "pooled to, found fp32[1, 2, 5, 4]")));
}

TEST(Pool2dTest, GradientOfAnotherElementTypeIsAnError) {
  EXPECT_THAT(InferenceCase("pool2d_grad")
                  .In("Out", {"fp32[1, 2, 4, 4]"})
                  .In("Out@GRAD", {"fp16[1, 2, 4, 4]"})
                  .In("X", {"fp32[1, 2, 8, 8]"})
                  .Out("X@GRAD")
                  .Attr("pooling_type", std::string("max"))
                  .Attr("ksize", std::vector<int32_t>{2, 2})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Out@GRAD (Out@GRAD_0): expected fp32[1, 2, 4, 4] that X is "
                                 "pooled to, found fp16[1, 2, 4, 4]")));
}

TEST(MaxPoolWithIndexTest, GradientReadsAMaskThatIsDeclaredAsTheImage) {
  EXPECT_THAT(InferenceCase("max_pool2d_with_index_grad")
                  .In("Mask", {"fp32[1, 2, 4, 4]"})
                  .In("Out@GRAD", {"fp32[1, 2, 4, 4]"})
                  .In("X", {"fp32[1, 2, 8, 8]"})
                  .Out("X@GRAD")
                  .Attr("ksize", std::vector<int32_t>{2, 2})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[1, 2, 8, 8]"))));
}

TEST(MaxPoolWithIndexTest, MaskIsLikeOut) {
  EXPECT_THAT(InferenceCase("max_pool2d_with_index")
                  .In("X", {"fp32[-1, 2, 8, 9]"})
                  .Out("Mask")
                  .Out("Out")
                  .Attr("ksize", std::vector<int32_t>{2, 3})
                  .Attr("strides", std::vector<int32_t>{2, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Mask", "int32[-1, 2, 4, 3]"),
                                       Pair("Out", "fp32[-1, 2, 4, 3]"))));
}

TEST(Conv3dTest, WindowsSlideInThreeDimensions) {
  EXPECT_THAT(InferenceCase("conv3d")
                  .In("Filter", {"fp32[4, 2, 1, 3, 3]"})
                  .In("Input", {"fp32[-1, 2, 5, 6, 7]"})
                  .Out("Output")
                  .Attr("strides", std::vector<int32_t>{1, 1, 2})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[-1, 4, 5, 4, 3]"))));
  EXPECT_THAT(
      InferenceCase("conv3d")
          .In("Filter", {"fp32[4, 2, 1, 3, 3]"})
          .In("Input", {"fp32[-1, 2, 6, 7]"})
          .Out("Output")
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("expected five dimensions (batch, channels, depth, height, width)")));
}

TEST(Conv2dTransposeTest, OutputShrinksToTheInputByConvolution) {
  EXPECT_THAT(InferenceCase("conv2d_transpose")
                  .In("Filter", {"fp32[8, 3, 4, 4]"})
                  .In("Input", {"fp32[-1, 8, 5, 6]"})
                  .Out("Output")
                  .Attr("groups", 2)
                  .Attr("paddings", std::vector<int32_t>{1, 1})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[-1, 6, 10, 12]"))));
}

TEST(Conv2dTransposeTest, OutputPaddingIsLessThanAStride) {
  EXPECT_THAT(InferenceCase("conv2d_transpose")
                  .In("Filter", {"fp32[8, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 8, 5, 5]"})
                  .Out("Output")
                  .Attr("output_padding", std::vector<int32_t>{2, 0})
                  .Attr("strides", std::vector<int32_t>{2, 2})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute output_padding: expected 0 to 1, found 2")));
}

TEST(Conv2dTransposeTest, FilterMustFitTheChannels) {
  EXPECT_THAT(InferenceCase("conv2d_transpose")
                  .In("Filter", {"fp32[4, 3, 3, 3]"})
                  .In("Input", {"fp32[1, 8, 5, 5]"})
                  .Out("Output")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Filter (Filter_0): expected dimension 0 of 8 channels")));
}

}  // namespace
}  // namespace weft
