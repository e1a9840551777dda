#include "executor/run/runner_testing.h"

#include <cstdint>
#include <vector>

#include "ops/schema/op_attrs.h"
#include "proto/program.h"

namespace weft::testing {

void FillConstant(ProgramBuilder* builder, const std::string& name, float value) {
  builder->Op("fill_constant", {}, {{"Out", {name}}})
      .IntAttr("dtype", pb::VarType::FP32)
      .FloatAttr("value", value);
  *builder->last_op().add_attrs() = MakeAttr("shape", std::vector<int64_t>{1});
}

ProgramBuilder Startup(float value) {
  ProgramBuilder builder;
  builder.Param("w", {1});
  FillConstant(&builder, "w", value);
  builder.Op("c_comm_init_all", {}, {});
  builder.Op("c_broadcast", {{"X", {"w"}}}, {{"Out", {"w"}}});
  builder.Op("c_sync_comm_stream", {{"X", {"w"}}}, {{"Out", {"w"}}});
  return builder;
}

ProgramBuilder Main() {
  ProgramBuilder builder;
  builder.Var("x", {-1, 1});
  builder.last_var().set_need_check_feed(true);
  builder.Param("w", {1}).Var("g", {-1, 1}).Var("loss", {-1, 1}).Var("sum", {-1, 1});
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"loss"}}}, kRoleLoss);
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"g"}}}, kRoleBackward);
  builder.Op("c_wait_compute", {{"X", {"g"}}}, {{"Out", {"g"}}}, kRoleBackward);
  builder.Op("c_allreduce_sum", {{"X", {"g"}}}, {{"Out", {"g"}}}, kRoleBackward);
  builder.Op("c_wait_comm", {{"X", {"g"}}}, {{"Out", {"g"}}}, kRoleOptimize);
  builder.Op("elementwise_add", {{"X", {"g"}}, {"Y", {"w"}}}, {{"Out", {"sum"}}}, kRoleOptimize);
  builder.Op("reduce_mean", {{"X", {"sum"}}}, {{"Out", {"w"}}}, kRoleOptimize);
  *builder.last_op().add_attrs() = MakeAttr("reduce_all", true);
  *builder.last_op().add_attrs() = MakeAttr("keep_dim", false);
  return builder;
}

}  // namespace weft::testing
