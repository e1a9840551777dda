#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(TransposeTest, PermutesDimensions) {
  EXPECT_THAT(
      Infer("transpose2(X: fp32[-1, 128, 12, 64]) -> Out, XShape", {{"axis", Ints{0, 2, 1, 3}}}),
      IsOkAndHolds("Out: fp32[-1, 12, 128, 64], XShape: fp32[0, -1, 128, 12, 64]"));
}

TEST(TransposeTest, InvalidPermutationIsAnError) {
  EXPECT_THAT(Infer("transpose2(X: fp32[2, 3]) -> Out, XShape", {{"axis", Ints{0, 0}}}),
              IsInvalidArgument("op 0 (transpose2) attribute axis: expected a permutation of the "
                                "dimensions of [2, 3], found [0, 0]"));
  EXPECT_THAT(Infer("transpose2(X: fp32[2, 3]) -> Out, XShape", {{"axis", Ints{0}}}),
              IsInvalidArgument("found [0]"));
  EXPECT_THAT(Infer("transpose2(X: fp32[2, 3]) -> Out, XShape", {{"axis", Ints{0, 2}}}),
              IsInvalidArgument("attribute axis: expected an axis of 2 dimensions, found 2"));
}

// To Paddle 3, -1 is the last element (so that nothing is left), to Paddle 2 an open end.
TEST(StridedSliceTest, OpenEndsOfPaddle2AreRefusedInProgramsOfPaddle3) {
  const auto slice = [](int64_t version, int32_t end, int32_t stride, const char* type) {
    return InferenceCase("strided_slice")
        .In("Input", {type})
        .Out("Out")
        .Attr("axes", std::vector<int32_t>{1})
        .Attr("starts", std::vector<int32_t>{3})
        .Attr("ends", std::vector<int32_t>{end})
        .Attr("strides", std::vector<int32_t>{stride})
        .Version(version)
        .Infer();
  };
  const auto takes = [](const char* type) { return IsOkAndHolds(absl::StrCat("Out: ", type)); };
  const auto is_refused = IsInvalidArgument("attribute ends: expected no -1");
  EXPECT_THAT(slice(2006002, -1, -1, "fp32[-1, 5]"), takes("fp32[-1, 4]"));
  EXPECT_THAT(slice(0, -1, -1, "fp32[-1, 5]"), takes("fp32[-1, 4]"));
  EXPECT_THAT(slice(3003001, -1, -1, "fp32[-1, 5]"), is_refused);
  EXPECT_THAT(slice(3003001, -1, -1, "fp32[2, -1]"), is_refused);
  EXPECT_THAT(slice(3003001, -1, -1, ""), is_refused);
  EXPECT_THAT(slice(3003001, -1, 1, "fp32[-1, 5]"), takes("fp32[-1, 1]"));
  EXPECT_THAT(slice(3003001, std::numeric_limits<int32_t>::min(), -1, "fp32[-1, 5]"),
              takes("fp32[-1, 4]"));
}

TEST(TransposeTest, GradientIsTransposedBack) {
  const auto gradient = [](const char* out_grad, const std::vector<int32_t>& axis) {
    return Infer(
        absl::StrCat("transpose2_grad(Out@GRAD: ", out_grad, ", XShape: fp32[0, 2, 3]) -> X@GRAD"),
        {{"axis", axis}});
  };
  EXPECT_THAT(gradient("fp32[3, 2]", {1, 0}), IsOkAndHolds("X@GRAD: fp32[2, 3]"));
  EXPECT_THAT(gradient("fp32[3, -1]", {1, 0}), IsOkAndHolds("X@GRAD: fp32[2, 3]"));
  EXPECT_THAT(gradient("fp32[2, 3]", {1, 0}),
              IsInvalidArgument("expected dimensions [3, 2], found fp32[2, 3]"));
  EXPECT_THAT(gradient("fp32[3, 2]", {1, 2}), IsInvalidArgument("attribute axis"));
  EXPECT_THAT(gradient("fp32[3, 2]", {1}), IsInvalidArgument("a permutation of"));
}

}  // namespace
}  // namespace weft::testing
