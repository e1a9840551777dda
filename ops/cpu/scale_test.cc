#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(ScaleTest, BiasComesAfterOrBeforeTheFactor) {
  const SlotTensors x = {{"X", {Floats({2}, {1, 2})}}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("scale", x, {{"scale", 3.0f}, {"bias", 1.0f}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(4, 7));
  WEFT_ASSERT_OK_AND_ASSIGN(
      out, RunOp("scale", x, {{"scale", 3.0f}, {"bias", 1.0f}, {"bias_after_scale", false}},
                 {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(6, 9));
}

TEST(ScaleTest, ScalesAGradientInPlace) {
  Tensor grad = Floats({}, {1});
  WEFT_ASSERT_OK(RunOpOn("scale", {{"X", {&grad}}}, {{"scale", 0.25f}}, {{"Out", {&grad}}}));
  EXPECT_THAT(Values<float>(grad), ElementsAre(0.25));
}

TEST(ScaleTest, IntegersAreScaled) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("scale", {{"X", {MakeTensor<int32_t>({2}, {1, -2})}}},
                                            {{"scale", 3.0f}}, {{"Out", 1}}));
  EXPECT_THAT(Values<int32_t>(out["Out"][0]), ElementsAre(3, -6));
}

TEST(IncrementTest, CountsInPlace) {
  Tensor counter = MakeTensor<int64_t>({1}, {-1});
  for (int i = 0; i < 3; ++i) {
    WEFT_ASSERT_OK(
        RunOpOn("increment", {{"X", {&counter}}}, {{"step", 2.0f}}, {{"Out", {&counter}}}));
  }
  EXPECT_THAT(Values<int64_t>(counter), ElementsAre(5));
}

TEST(IncrementTest, StepsOfFractions) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("increment", {{"X", {Floats({}, {1})}}}, {{"step", 0.5f}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(1.5));
}

TEST(IncrementTest, CountsOneNumberOnly) {
  EXPECT_THAT(RunOp("increment", {{"X", {Floats({2}, {1, 2})}}}, {}, {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input X: expected 1 elements, found shape [2]"));
}

}  // namespace
}  // namespace weft::testing
