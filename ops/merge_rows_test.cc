#include "ops/merge_rows.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(RowMergerTest, EqualRowsAddUpAndNumbersAscend) {
  Tensor merged;
  WEFT_ASSERT_OK(
      RowMerger().Merge(Rows({6, 2}, {4, 1, 4, 4}, {1, 2, 10, 20, 3, 4, 5, 6}), &merged));
  EXPECT_THAT(merged.rows(), ElementsAre(1, 4));
  EXPECT_THAT(Values<float>(merged), ElementsAre(10, 20, 9, 12));
  EXPECT_EQ(merged.TallDims(), (Dims{6, 2}));
}

TEST(GroupRowsTest, PositionsOfEqualRowsAreNeighboursInTheirOrder) {
  const std::vector<int64_t> rows = {4, 1, -1, 4, 0, 4};
  const RowGroups groups = GroupRows(rows);
  EXPECT_THAT(groups.rows, ElementsAre(0, 1, 4));
  EXPECT_THAT(groups.begins, ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(groups.positions, ElementsAre(4, 1, 0, 3, 5));
  EXPECT_THAT(GroupRows({}).rows, IsEmpty());
  EXPECT_THAT(GroupRows({}).begins, ElementsAre(0));
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

// As sorted rows are, in a few runs or in many.
TEST(RowMergerTest, RunsOfAnyNumberAreMerged) {
  for (const int64_t runs : {1, 2, 3, 7, 256, 257, 1000}) {
    std::vector<int64_t> rows;
    for (int64_t run = 0; run < runs; ++run) rows.insert(rows.end(), {run % 3, 3 + run % 2, 9});
    Tensor merged;
    WEFT_ASSERT_OK(
        RowMerger().Merge(Rows({10, 1}, rows, std::vector<float>(rows.size(), 1)), &merged));
    std::map<int64_t, float> expected;
    for (int64_t row : rows) ++expected[row];
    std::map<int64_t, float> found;
    for (int64_t i = 0; i < merged.dim(0); ++i) found[merged.rows()[i]] = merged.data<float>()[i];
    EXPECT_EQ(found, expected) << runs;
    EXPECT_EQ(merged.dim(0), static_cast<int64_t>(expected.size())) << runs;
    EXPECT_TRUE(std::is_sorted(merged.rows().begin(), merged.rows().end())) << runs;
  }
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
              IsUnimplemented("rows of int64"));
}

}  // namespace
}  // namespace weft::testing
