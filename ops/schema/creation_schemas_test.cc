#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(CreationTest, TypeAndShapeAreAttributes) {
  EXPECT_THAT(InferenceCase("fill_constant")
                  .Out("Out")
                  .Attr("dtype", 3)
                  .Attr("shape", std::vector<int64_t>{2, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "int64[2, 3]"))));
  EXPECT_THAT(
      InferenceCase("uniform_random").Out("Out").Attr("shape", std::vector<int64_t>{4}).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4]"))));
  EXPECT_THAT(InferenceCase("truncated_gaussian_random")
                  .Out("Out")
                  .Attr("shape", std::vector<int32_t>{4, 5})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4, 5]"))));
}

TEST(CreationTest, EmptyShapeIsAScalar) {
  EXPECT_THAT(InferenceCase("fill_constant").Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"))));
}

TEST(CreationTest, ShapeThatIsComputedIsUnknown) {
  EXPECT_THAT(InferenceCase("fill_constant").In("ShapeTensor", {"int64[2]"}).Out("Out").Infer(),
              IsOkAndHolds(IsEmpty()));
}

TEST(CreationTest, NumberOfNoElementTypeIsAnError) {
  EXPECT_THAT(InferenceCase("fill_constant").Out("Out").Attr("dtype", 7).Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (fill_constant) attribute dtype: expected the number of an "
                                 "element type, found 7")));
}

TEST(CreationTest, ImpossibleShapeIsAnError) {
  EXPECT_THAT(InferenceCase("gaussian_random")
                  .Out("Out")
                  .Attr("shape", std::vector<int64_t>{2, -3})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute shape: expected dimensions, found [2, -3]")));
}

}  // namespace
}  // namespace weft
