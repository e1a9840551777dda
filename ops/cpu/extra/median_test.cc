// Against numbers of Paddle 3.3.1.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Result {
  std::vector<float> out, gradient;  // of 2 for each median
  std::vector<int64_t> index;
};

absl::StatusOr<Result> Median(const std::string& type, const Tensor& x,
                              const std::vector<int64_t>& axes, const std::string& mode) {
  const AttrValues attrs = {{"axis", axes}, {"keepdim", false}, {"mode", mode}};
  WEFT_ASSIGN_OR_RETURN(auto made,
                        RunOp(type, {{"X", {x}}}, attrs, {{"Out", 1}, {"MedianIndex", 1}}));
  Result result;
  const Tensor &out = made["Out"][0], &index = made["MedianIndex"][0];
  result.out = Values<float>(out);
  result.index = Values<int64_t>(index);
  const Tensor dout = Floats(out.dims(), std::vector<float>(out.size(), 2));
  WEFT_ASSIGN_OR_RETURN(
      auto back, RunOp(absl::StrCat(type, "_grad"),
                       {{"X", {x}}, {"Out", {out}}, {"MedianIndex", {index}}, {"Out@GRAD", {dout}}},
                       attrs, {{"X@GRAD", 1}}));
  result.gradient = Values<float>(back["X@GRAD"][0]);
  return result;
}

TEST(MedianTest, TheMeanOfTheMiddleElements) {
  for (const char* const type : {"median", "nanmedian"}) {
    SCOPED_TRACE(type);
    WEFT_ASSERT_OK_AND_ASSIGN(
        const Result even,
        Median(type, Floats({3, 4}, {3, 1, 2, 4, 5, 5, 1, 1, 2, 2, 2, 5}), {1}, "avg"));
    EXPECT_THAT(even.out, ElementsAre(2.5, 3, 2));
    EXPECT_THAT(even.index, ElementsAre(2, 0, 3, 0, 1, 2));
    // In equal parts for all that equal the median.
    const float third = 2.0f / 3;
    EXPECT_THAT(even.gradient, ElementsAre(1, 0, 1, 0, 1, 0, 0, 1, third, third, third, 0));
    WEFT_ASSERT_OK_AND_ASSIGN(const Result odd,
                              Median(type, Floats({2, 3}, {3, 1, 2, 5, 5, 1}), {1}, "avg"));
    EXPECT_THAT(odd.out, ElementsAre(2, 5));
    EXPECT_THAT(odd.index, ElementsAre(2, 2, 0, 0));
    EXPECT_THAT(odd.gradient, ElementsAre(0, 0, 2, 1, 1, 0));
  }
}

// Before Paddle 3.2.
TEST(MedianTest, WithoutOutTheMiddleElementsGetTheGradient) {
  const Tensor x = Floats({2, 3}, {3, 1, 2, 5, 5, 1});
  const AttrValues attrs = {{"axis", std::vector<int64_t>{1}}, {"keepdim", false}};
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto made, RunOp("nanmedian", {{"X", {x}}}, attrs, {{"Out", 1}, {"MedianIndex", 1}}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto back, RunOp("nanmedian_grad",
                                             {{"X", {x}},
                                              {"MedianIndex", {made["MedianIndex"][0]}},
                                              {"Out@GRAD", {Floats({2}, {2, 4})}}},
                                             attrs, {{"X@GRAD", 1}}));
  EXPECT_THAT(Values<float>(back["X@GRAD"][0]), ElementsAre(0, 0, 2, 4, 0, 0));
}

TEST(MedianTest, TheLowerOne) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Result rows,
                            Median("median", Floats({2, 4}, {3, 1, 2, 4, 5, 6, 1, 7}), {0}, "min"));
  EXPECT_THAT(rows.out, ElementsAre(3, 1, 1, 4));
  EXPECT_THAT(rows.index, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(rows.gradient, ElementsAre(2, 2, 0, 2, 0, 0, 2, 0));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Result planes,
      Median("median", Floats({2, 2, 2}, {3, 1, 2, 4, 5, 6, 1, 7}), {0, 2}, "min"));
  EXPECT_THAT(planes.out, ElementsAre(3, 2));
  EXPECT_THAT(planes.index, ElementsAre(0, 0));
  EXPECT_THAT(planes.gradient, ElementsAre(2, 0, 2, 0, 0, 0, 0, 0));
  WEFT_ASSERT_OK_AND_ASSIGN(const Result all,
                            Median("median", Floats({2, 4}, {3, 1, 2, 4, 5, 6, 1, 7}), {}, "min"));
  EXPECT_THAT(all.out, ElementsAre(3));
  EXPECT_THAT(all.gradient, ElementsAre(2, 0, 0, 0, 0, 0, 0, 0));
}

TEST(MedianTest, NanCountsOrNot) {
  const Tensor x = Floats({2, 4}, {5, kNan, 1, kNan, kNan, kNan, kNan, kNan});
  WEFT_ASSERT_OK_AND_ASSIGN(const Result counts, Median("median", x, {1}, "min"));
  EXPECT_TRUE(std::isnan(counts.out[0]) && std::isnan(counts.out[1]));
  EXPECT_THAT(counts.index, ElementsAre(1, 0));
  EXPECT_THAT(counts.gradient, ElementsAre(0, 2, 0, 0, 2, 0, 0, 0));
  WEFT_ASSERT_OK_AND_ASSIGN(const Result lower, Median("nanmedian", x, {1}, "min"));
  EXPECT_EQ(lower.out[0], 1);
  EXPECT_TRUE(std::isnan(lower.out[1]));
  EXPECT_THAT(lower.index, ElementsAre(2, -1));
  EXPECT_THAT(lower.gradient, ElementsAre(0, 0, 2, 0, 0, 0, 0, 0));
  WEFT_ASSERT_OK_AND_ASSIGN(const Result mean, Median("nanmedian", x, {1}, "avg"));
  EXPECT_EQ(mean.out[0], 3);
  EXPECT_THAT(mean.index, ElementsAre(2, 0, -1, -1));
  EXPECT_THAT(mean.gradient, ElementsAre(1, 0, 1, 0, 0.5, 0.5, 0.5, 0.5));
}

TEST(MedianTest, OfNothing) {
  EXPECT_THAT(Median("median", Floats({2, 0}, {}), {1}, "avg").status(),
              IsInvalidArgument("has no elements"));
  EXPECT_THAT(Median("median", Floats({2}, {1, 2}), {1}, "avg").status(),
              IsInvalidArgument("attribute axis"));
  EXPECT_THAT(Median("median", Floats({2}, {1, 2}), {0}, "max").status(),
              IsInvalidArgument("attribute mode"));
}

}  // namespace
}  // namespace weft::testing
