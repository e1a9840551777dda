#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(ControlTest, SelectedVariableHasTheCommonType) {
  const auto infer = [](const std::vector<std::string>& xs) {
    return InferenceCase("select_input").In("X", xs).In("Mask", {"int32[1]"}).Out("Out").Infer();
  };
  EXPECT_THAT(infer({"fp32[4, 3]", "fp32[5, 3]"}), IsOkAndHolds("Out: fp32[-1, 3]"));
  EXPECT_THAT(infer({"fp32[4, 3]", "int64[4, 3]"}), IsOkAndHolds(""));
  EXPECT_THAT(infer({"fp32[4, 3]", "fp32[4]"}), IsOkAndHolds(""));
  EXPECT_THAT(infer({"fp32[4, 3]", ""}), IsOkAndHolds(""));
  EXPECT_THAT(Infer("select_output(X: fp32[4], Mask: bool[1]) -> Out*2"),
              IsOkAndHolds("Out: fp32[4] | fp32[4]"));
}

// An array has no type.
TEST(ControlTest, ElementOfAnArrayHasTheWrittenType) {
  EXPECT_THAT(Infer("read_from_array(X: ?, I: int64[1], X_W: fp32[4]) -> Out"),
              IsOkAndHolds("Out: fp32[4]"));
  EXPECT_THAT(Infer("read_from_array(X: ?, I: int64[1]) -> Out"), IsOkAndHolds(""));
  EXPECT_THAT(Infer("lod_array_length(X: ?) -> Out"), IsOkAndHolds("Out: int64[1]"));
}

}  // namespace
}  // namespace weft::testing
