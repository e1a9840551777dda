#include "transpiler/passes/accumulations.h"

#include "absl/algorithm/container.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/op_schema.h"
#include "transpiler/passes/device_accesses.h"

namespace weft {

std::vector<OpId> FindAccumulations(const Program& program, OpId branch) {
  const DeviceAccesses accesses(program);
  OpTraits traits(program);
  std::vector<std::vector<OpId>> users(program.var_id_limit());
  for (OpId id : program.block(0).ops()) {
    for (const DeviceAccess& access : accesses.Of(id)) users[access.var.value()].push_back(id);
  }
  // Nobody else's: that of a block of the branch is no variable of the root block.
  const auto is_of_branch = [&](VarId var) {
    return absl::c_all_of(users[var.value()], [&](OpId user) { return user == branch; });
  };
  const auto is_kept_for_branch = [&](OpId id, const DeviceAccess& access) {
    const Var var = program.var(access.var);
    return access.reads && var.persistable() && var.type() == pb::VarType::LOD_TENSOR &&
           accesses.FindBuffer(access.var) == nullptr &&
           absl::c_all_of(accesses.BuffersOf(access.var), is_of_branch) &&
           users[access.var.value()] == std::vector<OpId>{id, branch};
  };
  std::vector<OpId> found;
  for (OpId id : program.block(0).ops()) {
    if (id == branch) break;
    const Op op = program.op(id);
    if (!traits.Has(op, Trait::kElementwise) || op.output_args().empty()) continue;
    const std::vector<DeviceAccess>& all = accesses.Of(id);
    const bool adds = absl::c_any_of(all, [](const DeviceAccess& access) { return access.writes; });
    const bool stays_with_branch = absl::c_all_of(all, [&](const DeviceAccess& access) {
      return !access.writes || is_kept_for_branch(id, access);
    });
    if (adds && stays_with_branch) found.push_back(id);
  }
  return found;
}

}  // namespace weft
