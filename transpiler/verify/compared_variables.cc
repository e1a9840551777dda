#include "transpiler/verify/compared_variables.h"

#include <vector>

#include "ops/analysis/updates.h"

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
  for (Symbol param : FindTrainedByHand(original)) params_.insert(original.name(param));
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

}  // namespace weft
