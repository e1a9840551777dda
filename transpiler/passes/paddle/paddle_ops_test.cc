#include "transpiler/passes/paddle/paddle_ops.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/op_role.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Expects a program of these ops to have the text `expected`.
void ExpectOps(const std::vector<pb::OpDesc>& ops, const char* expected) {
  pb::ProgramDesc program = CompactProgram(expected).ToProto();
  const std::string text = CanonicalText(program);
  program.mutable_blocks(0)->clear_ops();
  for (const pb::OpDesc& op : ops) *program.mutable_blocks(0)->add_ops() = op;
  EXPECT_EQ(CanonicalText(program), text);
}

TEST(PaddleOps, WorkInPlaceUnderTheRoleThatIsGiven) {
  ExpectOps({PaddleSyncCalc("g", kRoleBackward), PaddleAllReduceSum("g", 3, kRoleBackward),
             PaddleSyncComm("g", 3, kRoleBackward), PaddleScale("g", 0.25, kRoleOptimize)},
            R"(
    Out=[g] = c_sync_calc_stream(X=[g]) role=backward
    Out=[g] = c_allreduce_sum(X=[g]) role=backward {ring_id=3}
    Out=[g] = c_sync_comm_stream(X=[g]) role=backward {ring_id=3}
    Out=[g] = scale(X=[g]) role=optimize {scale=0.25}
  )");
  ExpectOps({PaddleAssign("w", "w@SNAPSHOT", kRoleForward)}, "Out=[w@SNAPSHOT] = assign(X=[w])");
}

// As Paddle's C++ fills in the attributes that Python leaves out.
TEST(PaddleOps, HaveTheAttributesThatPaddleWrites) {
  std::vector<std::string> names;
  const pb::OpDesc op = PaddleAllReduceSum("g", 0, kRoleBackward);
  for (const auto& attr : op.attrs()) names.push_back(attr.name());
  EXPECT_THAT(names, ElementsAre("op_device", "op_namescope", "op_role", "op_role_var", "ring_id",
                                 "use_calc_stream", "use_model_parallel", "with_quant_attr"));
}

TEST(PaddleTensorVar, StopsGradientsAndIsNotPersistable) {
  pb::VarType::TensorDesc tensor;
  tensor.set_data_type(pb::VarType::FP16);
  tensor.add_dims(3);
  const pb::VarDesc var = PaddleTensorVar("buffer", tensor);
  EXPECT_EQ(var.name(), "buffer");
  EXPECT_TRUE(var.stop_gradient());
  EXPECT_FALSE(var.persistable());
  EXPECT_EQ(var.type().lod_tensor().tensor().SerializeAsString(), tensor.SerializeAsString());
}

TEST(TensorOfVar, IsThatOfTheRootBlock) {
  const Program program = CompactProgram(R"(
    var w : fp64[3, 5] parameter persistable
    var rows : selected_rows<fp16[7, 2]>
    Out=[y] = relu(X=[x])
  )");
  WEFT_ASSERT_OK_AND_ASSIGN(const auto tensor, TensorOfVar(program, "w"));
  EXPECT_EQ(tensor.data_type(), pb::VarType::FP64);
  EXPECT_THAT(tensor.dims(), ElementsAre(3, 5));
  const Op op = program.op(program.block(0).ops()[0]);
  WEFT_ASSERT_OK_AND_ASSIGN(const auto rows, TensorOfVar(op, "rows"));
  EXPECT_EQ(rows.data_type(), pb::VarType::FP16);
}

TEST(TensorOfVar, ErrorsNameTheVariableAndTheOp) {
  const Program program = CompactProgram("var id : raw\nOut=[y] = relu(X=[x])");
  EXPECT_THAT(TensorOfVar(program, "w"),
              StatusIs(kInvalid, "variable w is not declared in the root block"));
  EXPECT_THAT(TensorOfVar(program, "id"),
              StatusIs(kInvalid, HasSubstr("variable id: expected a tensor with an element type, "
                                           "found type ")));
  EXPECT_THAT(TensorOfVar(program.op(program.block(0).ops()[0]), "w"),
              StatusIs(kInvalid, "op 0 (relu): variable w is not declared in the root block"));
}

PassContext Context(const std::vector<std::string>& endpoints,
                    const absl::optional<std::vector<int>>& devices) {
  ClusterSpec spec;
  spec.endpoints = endpoints;
  spec.devices = devices;
  PassContext context;
  const auto cluster = Cluster::Create(spec, /*min_trainers=*/1);
  WEFT_EXPECT_OK(cluster.status());
  context.target.cluster = *cluster;
  return context;
}

TEST(PaddleCluster, TrainersAreTheEndpoints) {
  EXPECT_THAT(PaddleTrainers(Context({"a:1", "b:1"}, {{0, 1, 2}})), IsOkAndHolds(2));
  EXPECT_THAT(PaddleTrainers(PassContext()),
              StatusIs(kInvalid, HasSubstr("the number of trainers is unknown")));
}

TEST(PaddleCluster, DevicesHaveADefaultUnlessTheyAreRequired) {
  const PassContext given = Context({"a:1"}, {{0, 1, 2}});
  const PassContext unknown = Context({"a:1", "b:1"}, absl::nullopt);
  EXPECT_EQ(PaddleDevices(given, 8), 3);
  EXPECT_EQ(PaddleDevices(unknown, 8), 8);
  WEFT_EXPECT_OK(RequireDevices(given));
  EXPECT_THAT(RequireDevices(unknown),
              StatusIs(kInvalid, HasSubstr("the devices of each trainer are not given")));
}

}  // namespace
}  // namespace weft::testing
