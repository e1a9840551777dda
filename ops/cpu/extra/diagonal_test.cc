#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(TraceTest, AxesInReverseOrderAreTheTransposedMatrix) {
  for (const bool as_paddle : {false, true}) {
    Tensor x = Floats({2, 3}, {0, 1, 2, 3, 4, 5}), out;
    WEFT_ASSERT_OK_AND_ASSIGN(
        OpRunner trace,
        OpRunner::Make("trace", {{"Input", {&x}}}, {{"axis1", 1}, {"axis2", 0}, {"offset", 1}},
                       {{"Out", {&out}}}, as_paddle));
    WEFT_ASSERT_OK(trace.Run());
    EXPECT_THAT(Values<float>(out), ElementsAre(as_paddle ? 1 + 5 : 3));
  }
}

}  // namespace
}  // namespace weft::testing
