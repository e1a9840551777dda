#include "transpiler/verifier/values/option_flows.h"

#include "ops/analysis/values/batch_edits.h"

namespace weft {

const BatchFlow* OptionFlows::WithExactLoss() { return With(&FindLossEdits, &exact_loss_); }

const BatchFlow* OptionFlows::WithStatistics() { return With(&FindStateEdits, &statistics_); }

const BatchFlow* OptionFlows::With(Find find, Flow* flow) const {
  if (!flow->is_found) {
    flow->is_found = true;
    BatchFlowOptions options = options_();
    options.edits = find(main_, options);
    if (!options.edits.empty()) flow->flow = BatchFlow::Of(main_, options);
  }
  return flow->flow.has_value() ? &*flow->flow : nullptr;
}

}  // namespace weft
