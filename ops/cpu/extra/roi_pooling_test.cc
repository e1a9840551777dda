#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

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

TEST(RoiAlignTest, ManySamplesOfABinAreUnimplemented) {
  EXPECT_THAT(PoolRegions("roi_align", {0, 0, 1, 1}, {1}, {{"sampling_ratio", 65}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("expected at most 64")));
}

// Most samples of such a region are outside of the image, and have weight 0: it takes no time.
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
      EXPECT_THAT(PoolRegions(type, {0, 0, 1, 1}, {count}), IsInvalidArgument("input RoisNum: "))
          << type << count;
    }
    EXPECT_THAT(PoolRegions(type, {0, 0, 1, 1}, {1, 0}), IsInvalidArgument("input RoisNum"));
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
                    IsInvalidArgument("input ROIs: region 0 is not finite, or too large"))
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
  EXPECT_THAT(RunOpOn("roi_pool_grad",
                      {{"X", {&x}},
                       {"ROIs", {&rois}},
                       {"RoisNum", {&num}},
                       {"Argmax", {&argmax}},
                       {"Out@GRAD", {&dout}}},
                      {}, {{"X@GRAD", {&dx}}}),
              IsInvalidArgument("input Argmax: 2 is not in [-1, 2)"));
}

}  // namespace
}  // namespace weft::testing
