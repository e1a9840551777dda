#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

struct YoloTest : public ::testing::Test {
  Tensor box = Floats({1, 1, 4}, {0.7, 0.6, 0.5, 0.25}), label = MakeTensor<int32_t>({1, 1}, {1});
  Tensor loss, objects, match;

  absl::Status Run(Tensor x, const std::vector<int32_t>& anchors) {
    const AttrValues attrs = {{"anchors", anchors},
                              {"anchor_mask", std::vector<int32_t>{0}},
                              {"class_num", 2},
                              {"downsample_ratio", 8}};
    return RunOpOn("yolov3_loss", {{"X", {&x}}, {"GTBox", {&box}}, {"GTLabel", {&label}}}, attrs,
                   {{"Loss", {&loss}}, {"ObjectnessMask", {&objects}}, {"GTMatchMask", {&match}}});
  }
};

// Paddle refuses grids that are not square.
TEST_F(YoloTest, AnImageTurnedOverHasTheSameLoss) {
  const std::vector<float> wide = {0.1,  -0.2, 0.3, 0.4,  -0.5, 0.6, 0.7,
                                   -0.8, 0.9,  1.0, -1.1, 1.2,  1.3, -1.4};
  WEFT_ASSERT_OK(Run(Floats({1, 7, 1, 2}, wide), {9, 4}));
  const std::vector<float> expected = Values<float>(loss);
  std::vector<float> tall = wide;
  for (int channel : {0, 2}) {  // x and y, w and h
    std::swap_ranges(tall.begin() + 2 * channel, tall.begin() + 2 * channel + 2,
                     tall.begin() + 2 * channel + 2);
  }
  box = Floats({1, 1, 4}, {0.6, 0.7, 0.25, 0.5});
  WEFT_ASSERT_OK(Run(Floats({1, 7, 2, 1}, tall), {4, 9}));
  EXPECT_THAT(Values<float>(loss), Pointwise(FloatNear(1e-6), expected));
}

TEST_F(YoloTest, BoxesBeyondTheImageAndInvalidLabelsAreErrors) {
  const Tensor x = Floats({1, 7, 1, 1}, std::vector<float>(7, 0));
  for (float center : {1.0f, -0.1f, std::nanf("")}) {
    box.data<float>()[0] = center;
    EXPECT_THAT(Run(x, {9, 4}), IsInvalidArgument("input GTBox: the center of box 0"));
  }
  box.data<float>()[0] = 0;
  label.data<int32_t>()[0] = 2;
  EXPECT_THAT(Run(x, {9, 4}), IsInvalidArgument("input GTLabel: 2 of box 0 is not in [0, 2)"));
}

TEST_F(YoloTest, WhereThereAreNoBoxesAllCellsAreEmpty) {
  box = Floats({1, 1, 4}, {5, 5, 0, 0});
  WEFT_ASSERT_OK(Run(Floats({1, 7, 1, 1}, std::vector<float>(7, 0)), {9, 4}));
  EXPECT_THAT(Values<float>(objects), Each(0));
  EXPECT_THAT(Values<int32_t>(match), ElementsAre(-1));
  EXPECT_NEAR(Values<float>(loss)[0], std::log(2.0f), 1e-6);
}

}  // namespace
}  // namespace weft::testing
