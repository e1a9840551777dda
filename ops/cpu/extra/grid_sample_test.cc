#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// Output of an image [1, 1, 3, 4] at one point.
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
  // 1 + 2/3 reflected at 1, the center of the last element, is the center of the one before it.
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
