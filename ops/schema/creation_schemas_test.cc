#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(CreationTest, TypeAndShapeAreAttributes) {
  EXPECT_THAT(Infer("fill_constant() -> Out", {{"dtype", 3}, {"shape", Longs{2, 3}}}),
              IsOkAndHolds("Out: int64[2, 3]"));
  EXPECT_THAT(Infer("uniform_random() -> Out", {{"shape", Longs{4}}}),
              IsOkAndHolds("Out: fp32[4]"));
  EXPECT_THAT(Infer("truncated_gaussian_random() -> Out", {{"shape", Ints{4, 5}}}),
              IsOkAndHolds("Out: fp32[4, 5]"));
}

TEST(CreationTest, EmptyShapeIsAScalar) {
  EXPECT_THAT(Infer("fill_constant() -> Out"), IsOkAndHolds("Out: fp32[]"));
}

TEST(CreationTest, ShapeThatIsComputedIsUnknown) {
  EXPECT_THAT(Infer("fill_constant(ShapeTensor: int64[2]) -> Out"), IsOkAndHolds(""));
}

TEST(CreationTest, NumberOfNoElementTypeIsAnError) {
  EXPECT_THAT(
      Infer("fill_constant() -> Out", {{"dtype", 7}}),
      IsInvalidArgument(
          "op 0 (fill_constant) attribute dtype: expected the number of an element type, found 7"));
}

TEST(CreationTest, ImpossibleShapeIsAnError) {
  EXPECT_THAT(Infer("gaussian_random() -> Out", {{"shape", Longs{2, -3}}}),
              IsInvalidArgument("attribute shape: expected dimensions, found [2, -3]"));
}

}  // namespace
}  // namespace weft::testing
