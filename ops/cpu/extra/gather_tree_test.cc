#include <cstdint>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(GatherTreeTest, InvalidParentIsAnError) {
  EXPECT_THAT(RunOp("gather_tree",
                    {{"Ids", {MakeTensor<int64_t>({1, 1, 2}, {0, 1})}},
                     {"Parents", {MakeTensor<int64_t>({1, 1, 2}, {0, 2})}}},
                    {}, {{"Out", 1}}),
              IsInvalidArgument("input Parents: 2"));
}

}  // namespace
}  // namespace weft::testing
