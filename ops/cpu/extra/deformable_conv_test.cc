#include <cmath>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// With no offsets and a mask of 1 it is a convolution.
TEST(DeformableConvTest, OffsetsMoveTheWindow) {
  Tensor input = Floats({1, 1, 1, 3}, {1, 2, 4}), filter = Floats({1, 1, 1, 1}, {10});
  Tensor offset = Floats({1, 2, 1, 3}, {0, 0, 0, 0, 0.5, 5}), output;
  WEFT_ASSERT_OK(RunOpOn("deformable_conv_v1",
                         {{"Input", {&input}}, {"Filter", {&filter}}, {"Offset", {&offset}}}, {},
                         {{"Output", {&output}}}));
  EXPECT_THAT(Values<float>(output), ElementsAre(10, 30, 0));
}

TEST(DeformableConvTest, NanOffsetGivesNan) {
  Tensor input = Floats({1, 1, 1, 1}, {1}), filter = Floats({1, 1, 1, 1}, {10}), output;
  Tensor offset = Floats({1, 2, 1, 1}, {0, std::nanf("")});
  WEFT_ASSERT_OK(RunOpOn("deformable_conv_v1",
                         {{"Input", {&input}}, {"Filter", {&filter}}, {"Offset", {&offset}}}, {},
                         {{"Output", {&output}}}));
  EXPECT_TRUE(std::isnan(Values<float>(output)[0]));
}

}  // namespace
}  // namespace weft::testing
