#include "transpiler/passes/gradients/reduce_statistics.h"

#include "base/status_macros.h"
#include "ops/analysis/values/batch_edits.h"
#include "transpiler/passes/gradients/batch_edit_writer.h"
#include "transpiler/passes/support/rings.h"

namespace weft {

void ReduceStatistics::Options::Bind(OptionBinder& bind) {
  bind.Bool("statistics", &statistics, "reduce running statistics over the ranks too");
}

absl::StatusOr<bool> ReduceStatistics::Run(const PassContext& context,
                                           ProgramPair& programs) const {
  if (!options_.statistics) return false;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  return WriteBatchEdits(FindStateEdits(*programs.main, FlowOptionsOf(context)), kName,
                         "a state is computed from it", context, programs.main);
}

}  // namespace weft
