#include <cstdint>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

TEST(SliceTest, AnAxisThatIsLeftOutHasOneElement) {
  using Ints = std::vector<int32_t>;
  EXPECT_THAT(RunOp("slice", {{"Input", {Floats({2, 2}, {1, 2, 3, 4})}}},
                    {{"axes", Ints{1}},
                     {"starts", Ints{-100}},
                     {"ends", Ints{2}},
                     {"decrease_axis", Ints{1}}},
                    {{"Out", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "attribute decrease_axis: expected axes of one element, found [2, 2]"));
}

// Paddle writes a number that is not computed as attribute values, of a type that has no kernel.
TEST(SetValueTest, ValuesThatAreAnAttributeHaveNoKernel) {
  EXPECT_THAT(
      RunOp("set_value", {{"Input", {Floats({2}, {1, 2})}}},
            {{"axes", std::vector<int64_t>{0}},
             {"starts", std::vector<int64_t>{0}},
             {"ends", std::vector<int64_t>{1}},
             {"steps", std::vector<int64_t>{1}}},
            {{"Out", 1}}),
      StatusIs(absl::StatusCode::kUnimplemented, ::testing::HasSubstr("in place of ValueTensor")));
}

}  // namespace
}  // namespace weft::testing
