#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

// As in Paddle, which checks it in each step.
TEST(IndexSampleTest, IndexHasTheRowsOfX) {
  const auto infer = [](const char* x) {
    return InferenceCase("index_sample")
        .In("X", {x})
        .In("Index", {"int64[2, 1]"})
        .Out("Out")
        .Infer();
  };
  EXPECT_THAT(infer("fp32[2, 3]"), IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 1]"))));
  EXPECT_THAT(infer("fp32[-1, 3]"), IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 1]"))));
  EXPECT_THAT(infer("fp32[4, 3]"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("expected the rows of [4, 3], found")));
}

TEST(TakeAlongAxisTest, IndexMayHaveFewerRowsThanInput) {
  EXPECT_THAT(InferenceCase("take_along_axis")
                  .In("Input", {"fp32[4, 3]"})
                  .In("Index", {"int64[2, 1]"})
                  .Out("Result")
                  .Attr("Axis", 1)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Result", "fp32[2, 1]"))));
}

}  // namespace
}  // namespace weft
