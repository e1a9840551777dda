#include "ops/schema/communication_ops.h"

#include <string>

#include "gtest/gtest.h"
#include "ops/schema/op_schema.h"
#include "proto/testing/program_builder.h"

namespace weft {
namespace {

TEST(CommunicationOpsTest, EveryCollectiveOfTheSchemasIsKnown) {
  for (const OpSchema* schema : AllOpSchemas()) {
    const CollectiveOp* op = FindCollectiveOp(schema->type());
    ASSERT_EQ(op != nullptr, schema->Has(Trait::kCollective)) << schema->type();
    if (op == nullptr) continue;
    EXPECT_NE(schema->FindInput(op->in), nullptr) << schema->type();
    EXPECT_NE(schema->FindOutput(op->out), nullptr) << schema->type();
    EXPECT_NE(schema->FindAttr("ring_id"), nullptr) << schema->type();
    if (!op->root_attr.empty()) {
      EXPECT_NE(schema->FindAttr(op->root_attr), nullptr) << schema->type();
    }
  }
}

// The collective of an op of Paddle 3.
const CollectiveOp& Collective(const std::string& type, int reduce_type) {
  const Program program = testing::ProgramBuilder()
                              .Op(type, {{"x", {"g"}}}, {{"out", {"g"}}})
                              .IntAttr(std::string(kReduceTypeAttr), reduce_type)
                              .Build();
  return *FindCollectiveOp(program.op(program.block(0).ops()[0]));
}

TEST(CommunicationOpsTest, AnAttributeSaysHowOpsOfPaddle3Reduce) {
  EXPECT_EQ(Collective("all_reduce", 0).reduction, Reduction::kSum);
  EXPECT_EQ(Collective("all_reduce", 1).reduction, Reduction::kMax);
  EXPECT_EQ(Collective("all_reduce", 4).reduction, Reduction::kAvg);
  EXPECT_EQ(Collective("reduce", 3).reduction, Reduction::kProd);
  EXPECT_EQ(Collective("reduce", 3).kind, CollectiveKind::kReduce);
  EXPECT_EQ(Collective("all_reduce", 2).in, "x");
  // Inference reports it.
  EXPECT_EQ(Collective("all_reduce", 7).reduction, Reduction::kSum);
}

TEST(InPaddle3, IsTheOpThatDoesTheSame) {
  for (const char* type : {"c_allgather", "c_allreduce_avg", "c_allreduce_max", "c_allreduce_sum",
                           "c_broadcast", "c_reduce_sum", "c_reducescatter"}) {
    const CollectiveOp& of_paddle2 = *FindCollectiveOp(type);
    const CollectiveOp* const op = InPaddle3(of_paddle2);
    ASSERT_NE(op, nullptr) << type;
    EXPECT_EQ(op->kind, of_paddle2.kind) << type;
    EXPECT_EQ(op->reduction, of_paddle2.reduction) << type;
    EXPECT_EQ(op->root_attr, of_paddle2.root_attr) << type;
    EXPECT_EQ(op->in, "x") << type;
    EXPECT_EQ(InPaddle3(*op), op) << type;
  }
  EXPECT_EQ(InPaddle3(*FindCollectiveOp("c_allreduce_xsum")), nullptr);
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
