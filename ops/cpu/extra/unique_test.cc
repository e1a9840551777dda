#include <limits>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

TEST(BinCountTest, NegativeNumbersAndThoseThatNoTensorHasRoomForAreErrors) {
  for (const int64_t number : {int64_t{-1}, int64_t{1} << 60}) {
    EXPECT_THAT(
        RunOp("bincount", {{"X", {MakeTensor<int64_t>({2}, {0, number})}}}, {}, {{"Out", 1}}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at position 1")));
  }
}

TEST(BinCountTest, WithoutNumbersThereAreMinlengthBins) {
  const Tensor none = MakeTensor<int64_t>({0}, {});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("bincount", {{"X", {none}}}, {{"minlength", 2}}, {{"Out", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(0, 0));
}

TEST(SearchSortedTest, RowsOfBothMustBeAsMany) {
  EXPECT_THAT(RunOp("searchsorted",
                    {{"SortedSequence", {Floats({2, 2}, {1, 2, 3, 4})}},
                     {"Values", {Floats({1, 2}, {1, 2})}}},
                    {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Values")));
}

TEST(UniqueTest, WhatIsNoNumberCountsOnceAndComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("unique", {{"X", {Floats({4}, {nan, 2, nan, 1})}}},
                      {{"is_sorted", true}, {"return_counts", true}}, {{"Out", 1}, {"Counts", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(1, 2, IsNan()));
  EXPECT_THAT(Values<int64_t>(out["Counts"][0]), ElementsAre(1, 1, 2));
}

TEST(UniqueTest, AnyOrderHasNoKernel) {
  EXPECT_THAT(RunOp("unique", {{"X", {Floats({1}, {1})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("is_sorted")));
}

TEST(SegmentPoolTest, NumbersThatDescendOrAreNegativeAreErrors) {
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{1, 0}, {-1, 0}}) {
    EXPECT_THAT(RunOp("segment_pool",
                      {{"X", {Floats({2, 1}, {1, 2})}}, {"SegmentIds", {MakeTensor({2}, ids)}}}, {},
                      {{"Out", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input SegmentIds")));
  }
}

}  // namespace
}  // namespace weft::testing
