#include <cstdint>
#include <limits>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(UniqueTest, NanCountsOnceAndComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("unique", {{"X", {Floats({4}, {nan, 2, nan, 1})}}},
                      {{"is_sorted", true}, {"return_counts", true}}, {{"Out", 1}, {"Counts", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(1, 2, IsNan()));
  EXPECT_THAT(Values<int64_t>(out["Counts"][0]), ElementsAre(1, 1, 2));
}

TEST(UniqueTest, UnsortedIsInTheOrderOfFirstOccurrences) {
  const Tensor x = Int64s({5}, {7, 2, 7, 9, 2});
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("unique", {{"X", {x}}}, {}, {{"Out", 1}, {"Index", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(7, 2, 9));
  EXPECT_THAT(Values<int64_t>(out["Index"][0]), ElementsAre(0, 1, 0, 2, 1));
  WEFT_ASSERT_OK_AND_ASSIGN(out, RunOp("unique_with_counts", {{"X", {x}}}, {{"dtype", 3}},
                                       {{"Out", 1}, {"Index", 1}, {"Count", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Count"][0]), ElementsAre(2, 2, 1));
  // Of elements, whatever `axis` says.
  WEFT_ASSERT_OK_AND_ASSIGN(out,
                            RunOp("unique", {{"X", {Int64s({2, 2}, {7, 2, 7, 9})}}},
                                  {{"axis", std::vector<int32_t>{0}}}, {{"Out", 1}, {"Index", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Out"][0]), ElementsAre(7, 2, 9));
  EXPECT_THAT(Values<int64_t>(out["Index"][0]), ElementsAre(0, 1, 0, 2));
}

}  // namespace
}  // namespace weft::testing
