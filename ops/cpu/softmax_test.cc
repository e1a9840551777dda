#include <cmath>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::Gt;

TEST(SoftmaxTest, OverAnyAxis) {
  const float e = std::exp(1.0f);
  const SlotTensors x = {{"X", {Floats({2, 2}, {0, 1, 0, 0})}}};
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("softmax", x, {}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]),
              ElementsAre(FloatEq(1 / (1 + e)), FloatEq(e / (1 + e)), 0.5f, 0.5f));
  WEFT_ASSERT_OK_AND_ASSIGN(out, RunOp("softmax", x, {{"axis", 0}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]),
              ElementsAre(0.5f, FloatEq(e / (1 + e)), 0.5f, FloatEq(1 / (1 + e))));
}

TEST(SoftmaxTest, InPlaceAndOfLargeNumbers) {
  Tensor x = Floats({1, 2}, {1e30f, -1e30f});
  WEFT_ASSERT_OK(RunOpOn("softmax", {{"X", {&x}}}, {}, {{"Out", {&x}}}));
  EXPECT_FLOAT_EQ(Values<float>(x)[0], 1);
  EXPECT_THAT(Values<float>(x), Each(Gt(0)));
}

TEST(SoftmaxTest, OfNoClassesIsEmpty) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("softmax", {{"X", {Floats({2, 0}, {})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 0));
}

TEST(SoftmaxTest, GradientSumsToZeroInPlaceOfOutGrad) {
  Tensor out = Floats({2}, {0.25f, 0.75f}), dout = Floats({2}, {4, 0});
  WEFT_ASSERT_OK(
      RunOpOn("softmax_grad", {{"Out", {&out}}, {"Out@GRAD", {&dout}}}, {}, {{"X@GRAD", {&dout}}}));
  EXPECT_THAT(Values<float>(dout), ElementsAre(0.75f, -0.75f));
}

TEST(SoftmaxTest, MissingAxisIsNamed) {
  EXPECT_THAT(RunOp("softmax", {{"X", {Floats({2}, {0, 0})}}}, {{"axis", 1}}, {{"Out", 1}}),
              IsInvalidArgument("attribute axis: expected an axis of 1 dimensions, found 1"));
}

}  // namespace
}  // namespace weft::testing
