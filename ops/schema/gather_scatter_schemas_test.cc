#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

// As in Paddle, which checks it in each step.
TEST(IndexSampleTest, IndexHasTheRowsOfX) {
  const auto infer = [](const char* x) {
    return Infer(absl::StrCat("index_sample(X: ", x, ", Index: int64[2, 1]) -> Out"));
  };
  EXPECT_THAT(infer("fp32[2, 3]"), IsOkAndHolds("Out: fp32[2, 1]"));
  EXPECT_THAT(infer("fp32[-1, 3]"), IsOkAndHolds("Out: fp32[2, 1]"));
  EXPECT_THAT(infer("fp32[4, 3]"), IsInvalidArgument("expected the rows of [4, 3], found"));
}

TEST(TakeAlongAxisTest, IndexMayHaveFewerRowsThanInput) {
  EXPECT_THAT(
      Infer("take_along_axis(Input: fp32[4, 3], Index: int64[2, 1]) -> Result", {{"Axis", 1}}),
      IsOkAndHolds("Result: fp32[2, 1]"));
}

}  // namespace
}  // namespace weft::testing
