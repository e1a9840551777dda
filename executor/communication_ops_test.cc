#include "executor/communication_ops.h"

#include "gtest/gtest.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

// Of a fork of Paddle: written, never run.
constexpr char kOfAFork[] = "c_allreduce_xsum";

TEST(CommunicationOpsTest, EveryCollectiveOfTheSchemasButOneCanBeRun) {
  EXPECT_EQ(FindCollectiveOp(kOfAFork), nullptr);
  for (const OpSchema* schema : AllOpSchemas()) {
    if (schema->type() == kOfAFork) continue;
    const CollectiveOp* op = FindCollectiveOp(schema->type());
    ASSERT_EQ(op != nullptr, schema->Has(Trait::kCollective)) << schema->type();
    if (op == nullptr) continue;
    EXPECT_NE(schema->FindInput("X"), nullptr) << schema->type();
    EXPECT_NE(schema->FindOutput("Out"), nullptr) << schema->type();
    EXPECT_NE(schema->FindAttr("ring_id"), nullptr) << schema->type();
    EXPECT_NE(schema->FindAttr("use_calc_stream"), nullptr) << schema->type();
    if (!op->root_attr.empty()) {
      EXPECT_NE(schema->FindAttr(op->root_attr), nullptr) << schema->type();
    }
  }
}

TEST(CommunicationOpsTest, EveryStreamSyncOfTheSchemasCanBeRun) {
  for (const OpSchema* schema : AllOpSchemas()) {
    EXPECT_EQ(FindStreamSyncOp(schema->type()).has_value(), schema->Has(Trait::kStreamSync))
        << schema->type();
  }
}

TEST(CommunicationOpsTest, SumsTakeRows) {
  EXPECT_TRUE(TakesRows(*FindCollectiveOp("c_allreduce_sum")));
  EXPECT_TRUE(TakesRows(*FindCollectiveOp("c_allreduce_avg")));
  EXPECT_FALSE(TakesRows(*FindCollectiveOp("c_allreduce_max")));
  EXPECT_FALSE(TakesRows(*FindCollectiveOp("c_reduce_sum")));
  EXPECT_FALSE(TakesRows(*FindCollectiveOp("c_allgather")));
}

}  // namespace
}  // namespace weft
