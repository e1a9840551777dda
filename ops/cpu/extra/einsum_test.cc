// What op_vectors_test does not compare with Paddle's numbers.
#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(EinsumTest, SumOfNothingIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("einsum", {{"Operands", {Floats({2, 0}, {})}}},
                                            {{"equation", std::string("ij->i")}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 0));
}

}  // namespace
}  // namespace weft::testing
