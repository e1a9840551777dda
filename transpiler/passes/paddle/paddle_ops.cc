#include "transpiler/passes/paddle/paddle_ops.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/tensor_var.h"

namespace weft {
namespace {

pb::OpDesc InPlace(const std::string& type, const std::string& var, int role,
                   std::vector<std::pair<std::string, AttrValue>> attrs) {
  return BuildOp({type, {{"X", {var}}}, {{"Out", {var}}}, std::move(attrs), role},
                 Dialect::kPaddle);
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
  if (tensor.ok()) return tensor;
  return absl::Status(tensor.status().code(),
                      absl::StrCat(op.DebugName(), ": ", tensor.status().message()));
}

absl::StatusOr<int> PaddleTrainers(const PassContext& context) {
  const absl::optional<int> trainers = context.cluster.trainers();
  if (trainers.has_value()) return *trainers;
  return absl::InvalidArgumentError("the number of trainers is unknown; give the endpoints of all");
}

int PaddleDevices(const PassContext& context, int if_not_given) {
  const auto& devices = context.cluster.devices();
  return devices.has_value() ? static_cast<int>(devices->size()) : if_not_given;
}

absl::Status RequireDevices(const PassContext& context) {
  if (context.cluster.devices().has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError("the devices of each trainer are not given (0,1,...)");
}

}  // namespace weft
