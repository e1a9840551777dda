#include "ops/analysis/sum_losses.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ops/analysis/batch_flow.h"
#include "ops/analysis/losses.h"
#include "proto/op_role.h"

namespace weft {

SumLosses FindSumLosses(const Program& program, const BatchFlow& flow) {
  // The gradient is that of the value before collectives changed it in place.
  const auto is_sum = [&](Symbol loss) {
    const VarId var = program.block(0).Resolve(loss);
    return var.valid() && flow.AtEnd(var).made == BatchRelation::PartialSum();
  };
  const std::vector<Symbol> losses = FindLosses(program);
  const bool losses_are_sums = !losses.empty() && absl::c_all_of(losses, is_sum);
  SumLosses sums;
  std::set<std::string> others;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsLossGrad(op)) continue;
    for (Symbol gradient : op.output_args()) {
      absl::string_view name = program.name(gradient);
      const Symbol loss =
          absl::ConsumeSuffix(&name, kGradSuffix) ? program.FindSymbol(name) : Symbol();
      const bool is_known = loss.valid() && program.block(0).Resolve(loss).valid();
      const bool is_of_sum = is_known ? is_sum(loss) : losses_are_sums;
      (is_of_sum ? sums.gradients : others).emplace(program.name(gradient));
    }
  }
  sums.are_all = others.empty() && (losses_are_sums || !sums.gradients.empty());
  return sums;
}

}  // namespace weft
