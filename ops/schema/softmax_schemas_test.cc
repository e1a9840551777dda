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

TEST(SoftmaxTest, KeepsTheType) {
  EXPECT_THAT(InferenceCase("softmax").In("X", {"fp32[-1, 3]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 3]"))));
}

TEST(SoftmaxTest, AxisThatXDoesNotHaveIsAnError) {
  EXPECT_THAT(
      InferenceCase("softmax").In("X", {"fp32[-1, 3]"}).Out("Out").Attr("axis", -3).Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("op 0 (softmax) attribute axis: expected an axis of 2 dimensions, found -3")));
  EXPECT_THAT(InferenceCase("softmax_grad")
                  .In("Out", {"fp32[2]"})
                  .In("Out@GRAD", {"fp32[2]"})
                  .Out("X@GRAD")
                  .Attr("axis", 1)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attribute axis")));
}

}  // namespace
}  // namespace weft
