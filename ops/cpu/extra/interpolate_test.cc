// What the vectors of op_vectors_test leave out: other modes, and bad input.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ints = std::vector<int32_t>;

absl::StatusOr<std::vector<float>> PaddedRow(const std::vector<float>& row, const Ints& paddings,
                                             const std::string& mode) {
  auto out = RunOp("pad3d", {{"X", {Floats({1, 1, 1, 1, static_cast<int64_t>(row.size())}, row)}}},
                   {{"paddings", paddings}, {"mode", mode}}, {{"Out", 1}});
  WEFT_RETURN_IF_ERROR(out.status());
  return Values<float>((*out)["Out"][0]);
}

TEST(Pad3dTest, CircularPaddingStartsAgainAsOftenAsItTakes) {
  EXPECT_THAT(PaddedRow({1, 2}, {3, 1, 0, 0, 0, 0}, "circular"),
              IsOkAndHolds(ElementsAre(2, 1, 2, 1, 2, 1)));
}

TEST(Pad3dTest, NegativePaddingCutsOff) {
  EXPECT_THAT(PaddedRow({1, 2, 3}, {-1, 1, 0, 0, 0, 0}, "constant"),
              IsOkAndHolds(ElementsAre(2, 3, 0)));
}

TEST(Pad3dTest, ThereIsNothingToReflectBeyondTheImage) {
  EXPECT_THAT(PaddedRow({1, 2}, {2, 0, 0, 0, 0, 0}, "reflect"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attribute paddings")));
}

TEST(UnfoldTest, AWindowThatDoesNotFitIsAnError) {
  EXPECT_THAT(RunOp("unfold", {{"X", {Floats({1, 1, 1, 2}, {1, 2})}}},
                    {{"kernel_sizes", Ints{2, 2}},
                     {"strides", Ints{1, 1}},
                     {"paddings", Ints{0, 0, 0, 0}},
                     {"dilations", Ints{1, 1}}},
                    {{"Y", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input X")));
}

TEST(InterpolateTest, ScaleAndChannelsLast) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("nearest_interp_v2", {{"X", {Floats({1, 1, 2, 2}, {1, 2, 3, 4})}}},
                      {{"align_corners", false},
                       {"data_layout", std::string("NHWC")},
                       {"scale", std::vector<float>{2}}},
                      {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(1, 2, 4, 2));
  EXPECT_THAT(Values<float>(out["Out"][0]),
              ElementsAre(1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4));
}

TEST(InterpolateTest, ASizeIsNeeded) {
  EXPECT_THAT(RunOp("bilinear_interp_v2", {{"X", {Floats({1, 1, 1, 1}, {1})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attribute out_h")));
}

// Output of an image [1, 1, 3, 4] at one place.
double Sampled(double x, double y, const AttrValues& attrs) {
  const Tensor image = MakeTensor<double>({1, 1, 3, 4}, {1, 5, 2, 8, 3, 9, 4, 7, 6, 2, 8, 3});
  auto out =
      RunOp("grid_sampler", {{"Grid", {MakeTensor<double>({1, 1, 1, 2}, {x, y})}}, {"X", {image}}},
            attrs, {{"Output", 1}});
  WEFT_EXPECT_OK(out.status());
  return Values<double>((*out)["Output"][0])[0];
}

TEST(GridSamplerTest, PlacesOutsideOfTheImage) {
  const auto at = [](double x, double y, const std::string& padding, bool align_corners) {
    return Sampled(x, y, {{"padding_mode", padding}, {"align_corners", align_corners}});
  };
  EXPECT_EQ(at(-5, -1, "zeros", true), 0);
  EXPECT_EQ(at(NAN, 0, "zeros", true), 0);
  EXPECT_EQ(at(-5, -1, "border", true), 1);
  EXPECT_EQ(at(-5, 9, "border", true), 6);
  // 1 + 2/3 reflected at 1, the middle of the last element, is the middle of the one before it.
  EXPECT_NEAR(at(1 + 2.0 / 3, -1, "reflection", true), 2, 1e-12);
  // Reflected at the outer border of the last element: that one again.
  EXPECT_NEAR(at(1.25, -1, "reflection", false), 8, 1e-12);
}

TEST(GridSamplerTest, GradientOfTheGridIsTheSlope) {
  const Tensor image = MakeTensor<double>({1, 1, 3, 4}, {1, 5, 2, 8, 3, 9, 4, 7, 6, 2, 8, 3});
  for (const std::string padding : {"zeros", "border", "reflection"}) {
    for (const bool align_corners : {false, true}) {
      const AttrValues attrs = {{"padding_mode", padding}, {"align_corners", align_corners}};
      for (const double x : {-1.9, -1.1, -0.3, 0.45, 1.15, 2.6}) {
        const double y = 0.2, h = 1e-6;
        SCOPED_TRACE(absl::StrCat(padding, " ", align_corners, " ", x));
        WEFT_ASSERT_OK_AND_ASSIGN(auto grads,
                                  RunOp("grid_sampler_grad",
                                        {{"Grid", {MakeTensor<double>({1, 1, 1, 2}, {x, y})}},
                                         {"X", {image}},
                                         {"Output@GRAD", {MakeTensor<double>({1, 1, 1, 1}, {1})}}},
                                        attrs, {{"Grid@GRAD", 1}, {"X@GRAD", 1}}));
        const std::vector<double> grad = Values<double>(grads["Grid@GRAD"][0]);
        EXPECT_NEAR(grad[0], (Sampled(x + h, y, attrs) - Sampled(x - h, y, attrs)) / (2 * h), 1e-6);
        EXPECT_NEAR(grad[1], (Sampled(x, y + h, attrs) - Sampled(x, y - h, attrs)) / (2 * h), 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
