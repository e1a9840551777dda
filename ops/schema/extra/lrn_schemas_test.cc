#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::InferenceCase;
using ::weft::testing::StatusIs;

TEST(LrnTest, NeighborsAreOnBothSides) {
  EXPECT_THAT(InferenceCase("lrn").In("X", {"fp32[1, 5, 2, 2]"}).Out("Out").Attr("n", 4).Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute n: expected an odd number, found 4")));
}

}  // namespace
}  // namespace weft
