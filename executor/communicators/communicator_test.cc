#include "executor/communicators/communicator.h"

#include "gtest/gtest.h"
#include "ops/schema/communication_ops.h"

namespace weft {
namespace {

TEST(CommunicatorTest, SumsRunOnRowsToo) {
  EXPECT_TRUE(CanRunOnRows(*FindCollectiveOp("c_allreduce_sum")));
  EXPECT_TRUE(CanRunOnRows(*FindCollectiveOp("c_allreduce_avg")));
  for (const char* type : {"c_allreduce_max", "c_reduce_sum", "c_allgather", "c_allreduce_xsum"}) {
    EXPECT_FALSE(CanRunOnRows(*FindCollectiveOp(type))) << type;
  }
}

}  // namespace
}  // namespace weft
