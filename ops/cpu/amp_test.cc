// Loss scaling, beyond what op_vectors_test compares with Paddle's numbers.
#include <limits>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CheckFiniteTest, GradientsOfAnyPrecisionAreScaledInPlace) {
  Tensor half = MakeTensor<Float16>({2}, {8.0f, -4.0f}), single = Floats({1}, {2});
  Tensor scale = Floats({1}, {4}), found;
  WEFT_ASSERT_OK(RunOpOn("check_finite_and_unscale", {{"X", {&half, &single}}, {"Scale", {&scale}}},
                         {}, {{"Out", {&half, &single}}, {"FoundInfinite", {&found}}}));
  EXPECT_EQ(half.dtype(), DType::kFloat16);
  EXPECT_THAT(Values<Float16>(half), ElementsAre(2.0f, -1.0f));
  EXPECT_THAT(Values<float>(single), ElementsAre(0.5));
  EXPECT_THAT(Values<bool>(found), ElementsAre(false));
}

TEST(CheckFiniteTest, EveryGradientHasItsOutput) {
  Tensor x = Floats({1}, {1}), y = Floats({1}, {1}), scale = Floats({1}, {4}), found;
  const auto run = [&](const std::vector<Tensor*>& in, const std::vector<Tensor*>& out) {
    return RunOpOn("check_finite_and_unscale", {{"X", in}, {"Scale", {&scale}}}, {},
                   {{"Out", out}, {"FoundInfinite", {&found}}});
  };
  EXPECT_THAT(run({&x, &y}, {&x}), StatusIs(absl::StatusCode::kInvalidArgument,
                                            "output Out: expected 2 variables, as X has, found 1"));
  EXPECT_THAT(run({&x, &y}, {&x, nullptr}), IsInvalidArgument("found 1"));
  EXPECT_THAT(run({&x, nullptr}, {&x, &y}), IsInvalidArgument("input X"));
}

TEST(CheckFiniteTest, AnOverflowInHalfPrecisionIsFound) {
  Tensor half = MakeTensor<Float16>({2}, {1.0f, 1e6f}), scale = Floats({1}, {4}), out, found;
  WEFT_ASSERT_OK(RunOpOn("check_finite_and_unscale", {{"X", {&half}}, {"Scale", {&scale}}}, {},
                         {{"Out", {&out}}, {"FoundInfinite", {&found}}}));
  EXPECT_THAT(Values<bool>(found), ElementsAre(true));
}

struct UpdateLossScalingTest : public ::testing::Test {
  Tensor x = MakeTensor<Float16>({2}, {1.0f, 2.0f}), found = MakeTensor<bool>({1}, {false});
  Tensor scale = Floats({1}, {8});
  Tensor good = MakeTensor<int32_t>({1}, {1}), bad = MakeTensor<int32_t>({1}, {1});
  AttrValues attrs = {{"incr_every_n_steps", 2},
                      {"decr_every_n_nan_or_inf", 2},
                      {"incr_ratio", 2.0f},
                      {"decr_ratio", 0.5f}};
  SlotPointers more_inputs;

  absl::Status Run() {
    SlotPointers inputs = {{"X", {&x}},
                           {"FoundInfinite", {&found}},
                           {"PrevLossScaling", {&scale}},
                           {"InGoodSteps", {&good}},
                           {"InBadSteps", {&bad}}};
    inputs.insert(inputs.end(), more_inputs.begin(), more_inputs.end());
    return RunOpOn("update_loss_scaling", inputs, attrs,
                   {{"Out", {&x}},
                    {"LossScaling", {&scale}},
                    {"OutGoodSteps", {&good}},
                    {"OutBadSteps", {&bad}}});
  }
};

TEST_F(UpdateLossScalingTest, EnoughGoodStepsRaiseTheScale) {
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<float>(scale), ElementsAre(16));
  EXPECT_THAT(Values<int32_t>(good), ElementsAre(0));
  EXPECT_THAT(Values<int32_t>(bad), ElementsAre(0));
  EXPECT_THAT(Values<Float16>(x), ElementsAre(1.0f, 2.0f));
}

TEST_F(UpdateLossScalingTest, TheScaleStaysFinite) {
  scale = Floats({1}, {3e38f});
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<float>(scale), ElementsAre(3e38f));
}

TEST_F(UpdateLossScalingTest, EnoughBadStepsLowerTheScale) {
  found = MakeTensor<bool>({1}, {true});
  x = MakeTensor<Float16>({2}, {kInfinity, 1.0f});
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<float>(scale), ElementsAre(4));
  EXPECT_THAT(Values<int32_t>(good), ElementsAre(0));
  EXPECT_THAT(Values<Float16>(x), ElementsAre(0.0f, 0.0f));
}

TEST_F(UpdateLossScalingTest, TheScaleIsAtLeastOne) {
  found = MakeTensor<bool>({1}, {true});
  scale = Floats({1}, {1.5});
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<float>(scale), ElementsAre(1));
}

// Counts come from files, so they may have any value.
TEST_F(UpdateLossScalingTest, CountsWrapAround) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  good = MakeTensor<int32_t>({1}, {kMost});
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<int32_t>(good), ElementsAre(std::numeric_limits<int32_t>::min()));
  bad = MakeTensor<int32_t>({1}, {kMost});
  found = MakeTensor<bool>({1}, {true});
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<int32_t>(bad), ElementsAre(std::numeric_limits<int32_t>::min()));
}

TEST_F(UpdateLossScalingTest, StopUpdateLeavesTheScaleAndTheCounts) {
  Tensor stop = MakeTensor<bool>({1}, {true});
  more_inputs = {{"StopUpdate", {&stop}}};
  found = stop;
  WEFT_ASSERT_OK(Run());
  EXPECT_THAT(Values<float>(scale), ElementsAre(8));
  EXPECT_THAT(Values<int32_t>(bad), ElementsAre(1));
  EXPECT_THAT(Values<Float16>(x), ElementsAre(0.0f, 0.0f));
}

TEST_F(UpdateLossScalingTest, CountsOfAnotherTypeAreAnError) {
  good = MakeTensor<int64_t>({1}, {1});
  EXPECT_THAT(Run(), IsInvalidArgument("input InGoodSteps: expected int32, found int64"));
}

}  // namespace
}  // namespace weft::testing
