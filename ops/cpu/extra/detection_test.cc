// Regions, deformable convolution and YOLO, beyond what op_vectors_test compares with Paddle's
// numbers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// --- Regions -------------------------------------------------------------------------------------

absl::StatusOr<std::vector<float>> PoolRegions(const std::string& type,
                                               const std::vector<float>& box,
                                               const std::vector<int32_t>& counts,
                                               const AttrValues& attrs = {}) {
  Tensor x = Floats({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor rois = Floats({static_cast<int64_t>(box.size() / 4), 4}, box);
  Tensor num = MakeTensor<int32_t>({static_cast<int64_t>(counts.size())}, counts);
  Tensor out, argmax;
  SlotPointers outputs = {{"Out", {&out}}};
  if (type == "roi_pool") outputs.push_back({"Argmax", {&argmax}});
  WEFT_RETURN_IF_ERROR(
      RunOpOn(type, {{"X", {&x}}, {"ROIs", {&rois}}, {"RoisNum", {&num}}}, attrs, outputs));
  return Values<float>(out);
}

TEST(RoiAlignTest, ABinIsTheMeanOfItsSamples) {
  // One sample in the middle between the elements of the first two columns.
  EXPECT_THAT(PoolRegions("roi_align", {0, 0, 1, 1}, {1}), IsOkAndHolds(ElementsAre(3)));
}

TEST(RoiAlignTest, ARegionWithoutExtentIsZero) {
  EXPECT_THAT(PoolRegions("roi_align", {2, 1, 2, 1}, {1}, {{"aligned", true}}),
              IsOkAndHolds(ElementsAre(0)));
}

// Most samples of such a region are outside of the image, and weigh nothing: it takes no time.
TEST(RoiAlignTest, ALargeRegionCostsWhatIsInTheImage) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto out,
                            PoolRegions("roi_align", {0, 0, 200000, 200000}, {1},
                                        {{"pooled_height", 64}, {"pooled_width", 64}}));
  EXPECT_GT(out[0], 0);
  EXPECT_THAT(std::vector<float>(out.begin() + 1, out.end()), Each(0));
}

TEST(RegionsTest, CountsMustBeThoseOfTheRegions) {
  for (const char* type : {"roi_align", "roi_pool"}) {
    for (int32_t count : {-1, 0, 2}) {
      EXPECT_THAT(PoolRegions(type, {0, 0, 1, 1}, {count}),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input RoisNum: ")))
          << type << count;
    }
    EXPECT_THAT(PoolRegions(type, {0, 0, 1, 1}, {1, 0}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input RoisNum")));
  }
}

TEST(RegionsTest, BoxesOfNoOrAnyExtentAreErrors) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string type : {"roi_align", "roi_pool"}) {
    AttrValues attrs;
    if (type == "roi_align") attrs.emplace_back("aligned", true);
    for (float edge : {nan, -nan, HUGE_VALF, -HUGE_VALF, 1e30f, -1e30f}) {
      for (size_t i = 0; i < 4; ++i) {
        std::vector<float> box = {0, 0, 1, 1};
        box[i] = edge;
        EXPECT_THAT(PoolRegions(type, box, {1}, attrs).status(),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr("input ROIs: region 0 is not finite, or too large")))
            << type << edge << i;
      }
    }
  }
}

TEST(RoiPoolTest, ARegionOutsideTheImageIsZero) {
  EXPECT_THAT(PoolRegions("roi_pool", {10, 10, 12, 12}, {1}), IsOkAndHolds(ElementsAre(0)));
}

TEST(RoiPoolTest, ArgmaxBeyondTheImageIsAnErrorInTheGradient) {
  Tensor x = Floats({1, 1, 1, 2}, {1, 2}), rois = Floats({1, 4}, {0, 0, 1, 0});
  Tensor num = MakeTensor<int32_t>({1}, {1}), argmax = MakeTensor<int64_t>({1, 1, 1, 1}, {2});
  Tensor dout = Floats({1, 1, 1, 1}, {1}), dx;
  EXPECT_THAT(
      RunOpOn("roi_pool_grad",
              {{"X", {&x}},
               {"ROIs", {&rois}},
               {"RoisNum", {&num}},
               {"Argmax", {&argmax}},
               {"Out@GRAD", {&dout}}},
              {}, {{"X@GRAD", {&dx}}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input Argmax: 2 is not in [-1, 2)")));
}

// --- Deformable convolution ----------------------------------------------------------------------

// With no offsets and a mask of 1 it is a convolution.
TEST(DeformableConvTest, OffsetsMoveTheWindow) {
  Tensor input = Floats({1, 1, 1, 3}, {1, 2, 4}), filter = Floats({1, 1, 1, 1}, {10});
  Tensor offset = Floats({1, 2, 1, 3}, {0, 0, 0, 0, 0.5, 5}), output;
  WEFT_ASSERT_OK(RunOpOn("deformable_conv_v1",
                         {{"Input", {&input}}, {"Filter", {&filter}}, {"Offset", {&offset}}}, {},
                         {{"Output", {&output}}}));
  EXPECT_THAT(Values<float>(output), ElementsAre(10, 30, 0));
}

TEST(DeformableConvTest, AnOffsetThatIsNoNumberShows) {
  Tensor input = Floats({1, 1, 1, 1}, {1}), filter = Floats({1, 1, 1, 1}, {10}), output;
  Tensor offset = Floats({1, 2, 1, 1}, {0, std::nanf("")});
  WEFT_ASSERT_OK(RunOpOn("deformable_conv_v1",
                         {{"Input", {&input}}, {"Filter", {&filter}}, {"Offset", {&offset}}}, {},
                         {{"Output", {&output}}}));
  EXPECT_TRUE(std::isnan(Values<float>(output)[0]));
}

// --- YOLO ----------------------------------------------------------------------------------------

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

TEST_F(YoloTest, BoxesBeyondTheImageAndLabelsThatAreNoClassesAreErrors) {
  const Tensor x = Floats({1, 7, 1, 1}, std::vector<float>(7, 0));
  for (float center : {1.0f, -0.1f, std::nanf("")}) {
    box.data<float>()[0] = center;
    EXPECT_THAT(Run(x, {9, 4}), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("input GTBox: the center of box 0")));
  }
  box.data<float>()[0] = 0;
  label.data<int32_t>()[0] = 2;
  EXPECT_THAT(Run(x, {9, 4}), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("input GTLabel: 2 of box 0 is not in [0, 2)")));
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
