#include "executor/communicator.h"

#include "gtest/gtest.h"
#include "ops/schema/communication_ops.h"

namespace weft {
namespace {

TEST(CommunicatorTest, SumsRunOnRowsToo) {
  EXPECT_TRUE(CanRun(*FindCollectiveOp("c_allreduce_sum"), /*on_rows=*/true));
  EXPECT_TRUE(CanRun(*FindCollectiveOp("c_allreduce_avg"), /*on_rows=*/true));
  for (const char* type : {"c_allreduce_max", "c_reduce_sum", "c_allgather"}) {
    EXPECT_FALSE(CanRun(*FindCollectiveOp(type), /*on_rows=*/true)) << type;
    EXPECT_TRUE(CanRun(*FindCollectiveOp(type), /*on_rows=*/false)) << type;
  }
}

// An op of a Paddle fork: transpile writes it, nothing runs it.
TEST(CommunicatorTest, SeveralVariablesAtOnceDoNotRun) {
  EXPECT_FALSE(CanRun(*FindCollectiveOp("c_allreduce_xsum"), /*on_rows=*/false));
}

}  // namespace
}  // namespace weft
