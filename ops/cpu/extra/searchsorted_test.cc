#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(SearchSortedTest, NumbersOfRowsMustMatch) {
  EXPECT_THAT(RunOp("searchsorted",
                    {{"SortedSequence", {Floats({2, 2}, {1, 2, 3, 4})}},
                     {"Values", {Floats({1, 2}, {1, 2})}}},
                    {}, {{"Out", 1}}),
              IsInvalidArgument("Values"));
}

}  // namespace
}  // namespace weft::testing
