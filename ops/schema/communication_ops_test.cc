#include "ops/schema/communication_ops.h"

#include "gtest/gtest.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

TEST(CommunicationOpsTest, EveryCollectiveOfTheSchemasIsKnown) {
  for (const OpSchema* schema : AllOpSchemas()) {
    const CollectiveOp* op = FindCollectiveOp(schema->type());
    ASSERT_EQ(op != nullptr, schema->Has(Trait::kCollective)) << schema->type();
    if (op == nullptr) continue;
    EXPECT_NE(schema->FindInput("X"), nullptr) << schema->type();
    EXPECT_NE(schema->FindOutput("Out"), nullptr) << schema->type();
    EXPECT_NE(schema->FindAttr("ring_id"), nullptr) << schema->type();
    if (!op->root_attr.empty()) {
      EXPECT_NE(schema->FindAttr(op->root_attr), nullptr) << schema->type();
    }
  }
}

TEST(CommunicationOpsTest, EveryStreamSyncOfTheSchemasIsKnown) {
  for (const OpSchema* schema : AllOpSchemas()) {
    EXPECT_EQ(FindStreamSyncOp(schema->type()).has_value(), schema->Has(Trait::kStreamSync))
        << schema->type();
  }
}

TEST(StreamSyncOpType, IsTheTypeThatSynchronizesSo) {
  for (const char* type :
       {"c_sync_calc_stream", "c_sync_comm_stream", "c_wait_comm", "c_wait_compute"}) {
    EXPECT_EQ(StreamSyncOpType(*FindStreamSyncOp(type)), type);
  }
}

}  // namespace
}  // namespace weft
