#include "transpiler/passes/paddle/paddle_ops.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"

namespace weft {
namespace {

pb::OpDesc InPlace(const std::string& type, const std::string& var, int role, NewAttrs attrs) {
  return BuildOp(InPlaceOp(type, {var}, std::move(attrs), role), Dialect::kPaddle);
}

}  // namespace

pb::OpDesc PaddleSyncCalc(const std::string& var, int role) {
  return InPlace("c_sync_calc_stream", var, role, {});
}

pb::OpDesc PaddleSyncComm(const std::string& var, int ring, int role) {
  return InPlace("c_sync_comm_stream", var, role, {{"ring_id", ring}});
}

pb::OpDesc PaddleAllReduceSum(const std::string& var, int ring, int role) {
  return InPlace("c_allreduce_sum", var, role, {{"ring_id", ring}});
}

pb::OpDesc PaddleScale(const std::string& var, double factor, int role) {
  return InPlace("scale", var, role, {{"scale", static_cast<float>(factor)}});
}

pb::OpDesc PaddleAssign(const std::string& from, const std::string& to, int role) {
  return BuildOp({"assign", {{"X", {from}}}, {{"Out", {to}}}, {}, role}, Dialect::kPaddle);
}

pb::VarDesc PaddleTensorVar(const std::string& name, const pb::VarType::TensorDesc& tensor) {
  pb::VarDesc var = TensorVar(name, tensor);
  var.set_stop_gradient(true);
  return var;
}

absl::StatusOr<pb::VarType::TensorDesc> TensorOfVar(const Program& program,
                                                    const std::string& name) {
  const VarId id = program.block(0).FindVar(name);
  if (!id.valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", name, " is not declared in the root block"));
  }
  const absl::optional<pb::VarType::TensorDesc> tensor = program.var(id).Tensor();
  if (!tensor.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", name, ": expected a tensor with an element type, found type ",
                     program.var(id).type()));
  }
  return *tensor;
}

absl::StatusOr<pb::VarType::TensorDesc> TensorOfVar(const Op& op, const std::string& name) {
  auto tensor = TensorOfVar(op.program(), name);
  WEFT_RETURN_IF_ERROR(Annotate(op.DebugName(), tensor.status()));
  return tensor;
}

absl::StatusOr<int> PaddleTrainers(const PassContext& context) {
  const absl::optional<int> trainers = context.target.cluster.trainers();
  if (trainers.has_value()) return *trainers;
  return absl::InvalidArgumentError("the number of trainers is unknown; give the endpoints of all");
}

int PaddleDevices(const PassContext& context, int default_devices) {
  const auto& devices = context.target.cluster.devices();
  return devices.has_value() ? static_cast<int>(devices->size()) : default_devices;
}

absl::Status RequireDevices(const PassContext& context) {
  if (context.target.cluster.devices().has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError("the devices of each trainer are not given (0,1,...)");
}

}  // namespace weft
