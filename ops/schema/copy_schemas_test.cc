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

TEST(CastTest, ChangesTheElementTypeOnly) {
  EXPECT_THAT(InferenceCase("cast")
                  .In("X", {"fp32[-1, 3]"})
                  .Out("Out")
                  .Attr("in_dtype", 5)
                  .Attr("out_dtype", 22)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "bf16[-1, 3]"))));
}

TEST(CastTest, ToNoElementTypeIsAnError) {
  EXPECT_THAT(
      InferenceCase("cast")
          .In("X", {"fp32[3]"})
          .Out("Out")
          .Attr("in_dtype", 5)
          .Attr("out_dtype", 99)
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attribute out_dtype: expected the number of an element type, found 99")));
}

}  // namespace
}  // namespace weft
