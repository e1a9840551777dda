#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

TEST(UnfoldTest, AWindowThatDoesNotFitIsAnError) {
  EXPECT_THAT(RunOp("unfold", {{"X", {Floats({1, 1, 1, 2}, {1, 2})}}},
                    {{"kernel_sizes", Ints{2, 2}},
                     {"strides", Ints{1, 1}},
                     {"paddings", Ints{0, 0, 0, 0}},
                     {"dilations", Ints{1, 1}}},
                    {{"Y", 1}}),
              IsInvalidArgument("input X"));
}

}  // namespace
}  // namespace weft::testing
