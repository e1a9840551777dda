#include "ops/analysis/values/rank_steps.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

bool IsDistributed(const Var& var, const RankValuesOptions& options) {
  return !options.distributed_params.empty() &&
         options.distributed_params.count(std::string(var.name())) > 0;
}

// The data that all ranks get the whole of.
absl::flat_hash_set<VarId> WholeData(const Program& program, const RankValuesOptions& options) {
  absl::flat_hash_set<VarId> whole;
  if (options.feeds == nullptr || options.is_startup) return whole;
  for (const auto& [name, layout] : *options.feeds) {
    const VarId var = program.block(0).FindVar(name);
    if (var.valid() && !layout.axis.has_value()) whole.insert(var);
  }
  return whole;
}

Placement PlacementAtFirstStep(const Var& var, const RankValuesOptions& options,
                               const absl::flat_hash_set<VarId>& whole) {
  if (options.IsOneRank() || (!whole.empty() && whole.contains(var.id()))) {
    return Placement::kReplicated;
  }
  // A variable that is read before any op writes it is data, marked as such or not.
  const bool is_data = !var.persistable() && !options.is_startup;
  if (is_data || var.need_check_feed()) return Placement::kLocal;
  const int type = var.type();
  if (type == pb::VarType::FEED_MINIBATCH || type == pb::VarType::READER ||
      IsDistributed(var, options)) {
    return Placement::kLocal;
  }
  if (options.start == nullptr || !var.persistable()) return Placement::kReplicated;
  const auto found = options.start->find(var.name());
  const bool differs = found != options.start->end() && !found->second.IsEqualOnRanks();
  return differs ? found->second.placement : Placement::kReplicated;
}

bool HasExpressionAtFirstStep(const Var& var, const RankValuesOptions& options) {
  const bool are_made = options.table != nullptr && options.first_expression == 0;
  return are_made && (var.persistable() || var.need_check_feed());
}

RankValue ValueAtFirstStep(const Var& var, const RankValuesOptions& options,
                           const absl::flat_hash_set<VarId>& whole) {
  RankValue value;
  if (HasExpressionAtFirstStep(var, options)) {
    value.expr = options.table->Initial(var.name());
  }
  value.placement = PlacementAtFirstStep(var, options, whole);
  return value;
}

}  // namespace

void SetStartValues(const Program& program, const RankValuesOptions& options,
                    const CarriedValues& carried, std::vector<RankValue>* values) {
  const absl::flat_hash_set<VarId> whole = WholeData(program, options);
  values->clear();
  values->reserve(program.var_id_limit());
  for (size_t i = 0; i < program.var_id_limit(); ++i) {
    const VarId id(static_cast<uint32_t>(i));
    values->push_back(ValueAtFirstStep(program.var(id), options, whole));
  }
  for (const auto& [var, value] : carried) (*values)[var.value()] = value;
}

bool CarryOver(const Program& program, const RankValuesOptions& options,
               const RankMemory& end_of_step, Widening widening, CarriedValues* carried) {
  const absl::flat_hash_set<VarId> whole = WholeData(program, options);
  bool changed = false;
  for (size_t i = 0; i < end_of_step.values().size(); ++i) {
    const VarId id(static_cast<uint32_t>(i));
    const Var var = program.var(id);
    if (!end_of_step.IsWritten(id) || !var.persistable()) continue;
    const auto found = carried->find(id);
    RankValue start =
        found == carried->end() ? ValueAtFirstStep(var, options, whole) : found->second;
    RankValue end = end_of_step.values()[i];
    const bool is_widest = start.placement == Placement::kLocal && !start.is_gradient;
    if (widening == Widening::kAll && !is_widest) {
      end = RankValue();
      end.placement = Placement::kLocal;
    } else if (end.IsEqualOnRanks()) {
      const bool was_of_one_device = start.placement == Placement::kReplicated;
      if (!end.IsOfSomeRanks() || !was_of_one_device) continue;
    }
    // A change of a parameter is not an accumulated gradient.
    if (var.is_parameter()) end.is_gradient = end.is_summed = false;
    const bool was_own = start.placement == end.placement;
    if (was_own && start.is_gradient <= end.is_gradient && start.is_summed <= end.is_summed) {
      continue;
    }
    if (widening == Widening::kChanged) {
      if (is_widest) continue;
      end = RankValue();
      end.placement = Placement::kLocal;
    }
    const RankValue before = start;
    start = end;
    start.is_gradient = end.is_gradient && (!was_own || before.is_gradient);
    start.is_summed = end.is_summed && (!was_own || before.is_summed);
    start.is_mixed = start.averaged_across_ranks = false;
    start.terms = 0;
    start.expr = before.expr;
    if (!start.is_gradient) {
      start.factor = 1;
      start.unscaled_sums = 0;
    } else if (end.local_factor != 0) {
      // Of what the step adds, the part that comes from ranks: one device has the other factors,
      // too.
      start.factor = std::pow(options.RankFactor(), start.unscaled_sums);
    }
    start.local_factor = 0;
    (*carried)[id] = start;
    changed = true;
  }
  return changed;
}

StepStartValues ValuesAtStart(const Program& program, const RankValuesOptions& options,
                              CarriedValues carried) {
  const absl::flat_hash_set<VarId> whole = WholeData(program, options);
  StepStartValues start;
  start.others = std::move(carried);
  start.placements.reserve(program.var_id_limit());
  for (size_t i = 0; i < program.var_id_limit(); ++i) {
    const Var var = program.var(VarId(static_cast<uint32_t>(i)));
    start.placements.push_back(PlacementAtFirstStep(var, options, whole));
    if (HasExpressionAtFirstStep(var, options)) {
      start.others.try_emplace(var.id(), ValueAtFirstStep(var, options, whole));
    }
  }
  return start;
}

}  // namespace weft
