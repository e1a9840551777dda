#include <cstdint>
#include <limits>

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

TEST(UniqueTest, AnyOrderHasNoKernel) {
  EXPECT_THAT(RunOp("unique", {{"X", {Floats({1}, {1})}}}, {}, {{"Out", 1}}),
              IsUnimplemented("is_sorted"));
}

}  // namespace
}  // namespace weft::testing
