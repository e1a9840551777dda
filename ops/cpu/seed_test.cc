#include <cstdint>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(SeedTest, GivesItsSeedOrAnotherNumberInEveryStep) {
  RandomState random = RandomState::Seeded(1, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(auto fixed, RunOp("seed", {}, {{"seed", 5}}, {{"Out", 1}}, &random));
  EXPECT_EQ(*fixed["Out"][0].data<int32_t>(), 5);
  WEFT_ASSERT_OK_AND_ASSIGN(auto a, RunOp("seed", {}, {}, {{"Out", 1}}, &random));
  WEFT_ASSERT_OK_AND_ASSIGN(auto b, RunOp("seed", {}, {}, {{"Out", 1}}, &random));
  EXPECT_NE(*a["Out"][0].data<int32_t>(), 0);
  EXPECT_NE(*a["Out"][0].data<int32_t>(), *b["Out"][0].data<int32_t>());
}

}  // namespace
}  // namespace weft::testing
