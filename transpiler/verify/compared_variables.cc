#include "transpiler/verify/compared_variables.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/updates.h"
#include "proto/op_role.h"

namespace weft {

ComparedVariables::ComparedVariables(const Program& original,
                                     const std::set<std::string>& distributed_params) {
  const std::vector<ParamUpdate> updates = FindUpdates(original);
  for (VarId var : original.block(0).vars()) {
    if (original.var(var).is_parameter()) params_.insert(original.var(var).name());
  }
  for (const ParamUpdate& update : updates) {
    for (Symbol state : update.states) params_.erase(original.name(state));
  }
  for (Symbol statistic : FindRunningStatistics(original)) {
    params_.erase(original.name(statistic));
  }
  AddManuallyUpdatedParams(original);
  for (const ParamUpdate& update : updates) {
    if (distributed_params.count(std::string(original.name(update.param))) > 0) {
      skipped_.insert(original.name(update.param));
      for (Symbol state : update.states) skipped_.insert(original.name(state));
      continue;
    }
    params_.insert(original.name(update.param));
    if (update.master.valid()) params_.insert(original.name(update.master));
  }
}

// Ops that are no optimizers update a parameter that has a gradient and that no op of the forward
// pass writes.
void ComparedVariables::AddManuallyUpdatedParams(const Program& original) {
  absl::flat_hash_set<Symbol> found;
  for (VarId id : original.block(0).vars()) {
    const Var var = original.var(id);
    if (!var.persistable() || var.is_parameter() || absl::EndsWith(var.name(), kGradSuffix)) {
      continue;
    }
    if (original.block(0).FindVar(absl::StrCat(var.name(), kGradSuffix)).valid()) {
      found.insert(var.name_symbol());
    }
  }
  if (found.empty()) return;
  for (OpId id : original.block(0).ops()) {
    const Op op = original.op(id);
    if ((op.role() & ~kRoleLoss) != kRoleForward) continue;
    for (Symbol out : op.output_args()) found.erase(out);
  }
  for (Symbol name : found) params_.insert(original.name(name));
}

}  // namespace weft
