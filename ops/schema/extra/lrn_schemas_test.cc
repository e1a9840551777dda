#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(LrnTest, NeighborsAreOnBothSides) {
  EXPECT_THAT(Infer("lrn(X: fp32[1, 5, 2, 2]) -> Out", {{"n", 4}}),
              IsInvalidArgument("attribute n: expected an odd number, found 4"));
}

}  // namespace
}  // namespace weft::testing
