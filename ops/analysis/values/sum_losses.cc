#include "ops/analysis/values/sum_losses.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/communication_ops.h"
#include "proto/op_role.h"

namespace weft {

bool IsSumLoss(const Program& program, const BatchFlow& flow, Symbol loss) {
  const Block& root = program.block(0);
  const VarId var = root.Resolve(loss);
  if (!var.valid()) return false;
  const BatchRelation relation = flow.AtEnd(var).relation;
  if (!relation.IsReplicated()) return relation == BatchRelation::PartialSum();
  // A collective may have changed the loss in place, for a report. Its gradient is that of before.
  const absl::Span<const OpId> ops = root.ops();
  const auto writer = std::find_if(ops.rbegin(), ops.rend(), [&](OpId id) {
    return absl::c_linear_search(program.op(id).output_args(), loss);
  });
  if (writer == ops.rend()) return false;
  const Op op = program.op(*writer);
  const CollectiveOp* const collective = FindCollectiveOp(op);
  return collective != nullptr && absl::c_linear_search(op.input_args(), loss) &&
         AfterCollective(*collective, BatchRelation::PartialSum()) == relation;
}

SumLosses FindSumLosses(const ProgramFacts& facts, const BatchFlow& flow) {
  const Program& program = facts.program();
  const auto is_sum = [&](Symbol loss) { return IsSumLoss(program, flow, loss); };
  const std::vector<Symbol>& losses = facts.Get(FindLosses);
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
