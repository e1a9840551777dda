#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;

TEST(ControlTest, SelectedVariableHasTheCommonType) {
  const auto infer = [](const std::vector<std::string>& xs) {
    return InferenceCase("select_input").In("X", xs).In("Mask", {"int32[1]"}).Out("Out").Infer();
  };
  EXPECT_THAT(infer({"fp32[4, 3]", "fp32[5, 3]"}),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 3]"))));
  EXPECT_THAT(infer({"fp32[4, 3]", "int64[4, 3]"}), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(infer({"fp32[4, 3]", "fp32[4]"}), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(infer({"fp32[4, 3]", ""}), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(InferenceCase("select_output")
                  .In("X", {"fp32[4]"})
                  .In("Mask", {"bool[1]"})
                  .Out("Out", 2)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4] | fp32[4]"))));
}

// An array has no type.
TEST(ControlTest, ElementOfAnArrayHasTheWrittenType) {
  EXPECT_THAT(InferenceCase("read_from_array")
                  .In("X", {""})
                  .In("I", {"int64[1]"})
                  .In("X_W", {"fp32[4]"})
                  .Out("Out")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4]"))));
  EXPECT_THAT(
      InferenceCase("read_from_array").In("X", {""}).In("I", {"int64[1]"}).Out("Out").Infer(),
      IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(InferenceCase("lod_array_length").In("X", {""}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "int64[1]"))));
}

}  // namespace
}  // namespace weft
