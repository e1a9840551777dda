// Cases beyond op_vectors_test, which compares with Paddle's numbers.
#include <string>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

TEST(EinsumTest, SumOfNothingIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("einsum", {{"Operands", {Floats({2, 0}, {})}}},
                                            {{"equation", std::string("ij->i")}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 0));
}

}  // namespace
}  // namespace weft::testing
