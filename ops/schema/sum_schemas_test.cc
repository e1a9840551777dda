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

TEST(SumTest, OfTensorsIsATensor) {
  EXPECT_THAT(InferenceCase("sum").In("X", {"fp32[-1, 3]", "fp32[2, 3]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 3]"))));
}

TEST(SumTest, OfRowsIsRows) {
  EXPECT_THAT(
      InferenceCase("sum").In("X", {"rows fp32[9, 3]", "rows fp32[9, 3]"}).Out("Out").Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "rows fp32[9, 3]"))));
}

TEST(SumTest, OfRowsAndATensorIsATensor) {
  EXPECT_THAT(InferenceCase("sum").In("X", {"rows fp32[9, 3]", "fp32[9, 3]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[9, 3]"))));
}

TEST(SumTest, OfDifferentShapesIsAnError) {
  EXPECT_THAT(
      InferenceCase("sum").In("X", {"fp32[2, 3]", "fp32[2, 4]"}).Out("Out").Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "op 0 (sum) input X (X_1): expected fp32[2, 3] as the others, found fp32[2, 4]")));
}

TEST(ScaleTest, KeepsTheTypeAlsoOfRows) {
  EXPECT_THAT(
      InferenceCase("scale").In("X", {"rows fp32[9, 3]"}).Out("Out").Attr("scale", 0.5f).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "rows fp32[9, 3]"))));
}

}  // namespace
}  // namespace weft
