#include "ops/merge_rows.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::Floats;
using ::weft::testing::MakeTensor;
using ::weft::testing::Rows;
using ::weft::testing::StatusIs;
using ::weft::testing::Values;

TEST(RowMergerTest, EqualRowsAddUpAndNumbersAscend) {
  Tensor merged;
  WEFT_ASSERT_OK(
      RowMerger().Merge(Rows({6, 2}, {4, 1, 4, 4}, {1, 2, 10, 20, 3, 4, 5, 6}), &merged));
  EXPECT_THAT(merged.rows(), ElementsAre(1, 4));
  EXPECT_THAT(Values<float>(merged), ElementsAre(10, 20, 9, 12));
  EXPECT_EQ(merged.TallDims(), (Dims{6, 2}));
}

TEST(RowMergerTest, EqualRowsAreAddedInTheirOrder) {
  // In fp32, 1e8 + 1 = 1e8.
  Tensor merged;
  RowMerger merger;
  WEFT_ASSERT_OK(merger.Merge(Rows({2, 1}, {0, 0, 0}, {1, 1e8, -1e8}), &merged));
  EXPECT_THAT(Values<float>(merged), ElementsAre(0));
  WEFT_ASSERT_OK(merger.Merge(Rows({2, 1}, {0, 0, 0}, {1e8, -1e8, 1}), &merged));
  EXPECT_THAT(Values<float>(merged), ElementsAre(1));
}

TEST(RowMergerTest, RowsOfNegativeNumberDoNotCount) {
  Tensor merged;
  WEFT_ASSERT_OK(RowMerger().Merge({3, -1, 0}, Floats({3, 1}, {1, 2, 3}), {4, 1}, &merged));
  EXPECT_THAT(merged.rows(), ElementsAre(0, 3));
  EXPECT_THAT(Values<float>(merged), ElementsAre(3, 1));
}

TEST(RowMergerTest, NoRowsStayNone) {
  Tensor merged;
  WEFT_ASSERT_OK(RowMerger().Merge(Rows({6, 2}, {}, {}), &merged));
  EXPECT_THAT(merged.rows(), IsEmpty());
  EXPECT_EQ(merged.TallDims(), (Dims{6, 2}));
}

TEST(RowMergerTest, OtherElementTypesAreRefused) {
  Tensor merged;
  EXPECT_THAT(RowMerger().Merge({0}, MakeTensor<int64_t>({1, 1}, {1}), {4, 1}, &merged),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("rows of int64")));
}

}  // namespace
}  // namespace weft
