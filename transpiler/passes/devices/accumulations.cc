#include "transpiler/passes/devices/accumulations.h"

#include "absl/algorithm/container.h"
#include "ops/schema/algebra.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {

Accumulations::Accumulations(const Program& program)
    : program_(program), accesses_(program), users_(program.var_id_limit()) {
  for (OpId id : program.block(0).ops()) {
    for (const DeviceAccess& access : accesses_.Of(id)) users_[access.var.value()].push_back(id);
  }
}

bool Accumulations::AddsTo(VarId kept, OpId id) const {
  const Op op = program_.op(id);
  const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
  if (algebra != Algebra::kAdd && algebra != Algebra::kSum) return false;
  if (op.input_args().size() != 2 || op.output_args().size() != 1) return false;
  if (!op.StringAttr(kOpDeviceAttr).value_or("").empty()) return false;
  return absl::c_any_of(accesses_.Of(id), [kept](const DeviceAccess& access) {
    return access.var == kept && access.reads && access.writes;
  });
}

std::vector<OpId> Accumulations::Of(OpId branch) const {
  // Nobody else's: a buffer in a block of the branch is no variable of the root block.
  const auto is_of_branch = [&](VarId buffer) {
    return absl::c_all_of(users_[buffer.value()], [&](OpId user) { return user == branch; });
  };
  std::vector<OpId> found;
  for (const DeviceAccess& access : accesses_.Of(branch)) {
    const Var var = program_.var(access.var);
    const std::vector<OpId>& users = users_[access.var.value()];
    if (users.size() != 2 || users[1] != branch || !AddsTo(access.var, users[0])) continue;
    if (var.persistable() && var.type() == pb::VarType::LOD_TENSOR &&
        accesses_.FindBuffer(access.var) == nullptr &&
        absl::c_all_of(accesses_.BuffersOf(access.var), is_of_branch)) {
      found.push_back(users[0]);
    }
  }
  return found;
}

}  // namespace weft
