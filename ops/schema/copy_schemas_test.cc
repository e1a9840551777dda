#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(CastTest, ChangesTheElementTypeOnly) {
  EXPECT_THAT(Infer("cast(X: fp32[-1, 3]) -> Out", {{"in_dtype", 5}, {"out_dtype", 22}}),
              IsOkAndHolds("Out: bf16[-1, 3]"));
}

TEST(CastTest, ToNoElementTypeIsAnError) {
  EXPECT_THAT(
      Infer("cast(X: fp32[3]) -> Out", {{"in_dtype", 5}, {"out_dtype", 99}}),
      IsInvalidArgument("attribute out_dtype: expected the number of an element type, found 99"));
}

}  // namespace
}  // namespace weft::testing
