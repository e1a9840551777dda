#include "ops/analysis/values/rank_steps.h"

#include <cmath>
#include <cstddef>
#include <set>
#include <string>

namespace weft {

using Placement = RankValue::Placement;

RankSteps::RankSteps(const Program& program, const RankValuesOptions& options,
                     const RankMemory& memory)
    : program_(program), options_(options), memory_(memory) {
  if (options.is_startup) return;
  for (const auto& [name, layout] : options.setting.feeds) {
    const VarId var = program.block(0).FindVar(name);
    if (var.valid() && !layout.axis.has_value()) whole_.insert(var);
  }
}

Placement RankSteps::FirstPlacement(const Var& var) const {
  if (options_.IsOneRank() || (!whole_.empty() && whole_.contains(var.id()))) {
    return Placement::kReplicated;
  }
  // A variable that is read before any op writes it is data, marked as such or not.
  const bool is_data = !memory_.OutlivesStep(var.id()) && !options_.is_startup;
  if (is_data || var.need_check_feed()) return Placement::kLocal;
  const std::set<std::string>& distributed = options_.setting.distributed_params;
  const int type = var.type();
  if (type == pb::VarType::FEED_MINIBATCH || type == pb::VarType::READER ||
      (!distributed.empty() && distributed.count(std::string(var.name())) > 0)) {
    return Placement::kLocal;
  }
  if (options_.start == nullptr || !var.persistable()) return Placement::kReplicated;
  const auto found = options_.start->find(var.name());
  const bool differs = found != options_.start->end() && !found->second.IsEqualOnRanks();
  return differs ? found->second.placement : Placement::kReplicated;
}

RankValue RankSteps::FirstValue(const Var& var) const {
  RankValue value;
  const bool has_expr = options_.table != nullptr && options_.first_expression == 0 &&
                        (var.persistable() || var.need_check_feed());
  if (has_expr) value.expr = options_.table->Initial(var.name());
  value.placement = FirstPlacement(var);
  return value;
}

void RankSteps::SetStart(std::vector<RankValue>* values) const {
  values->clear();
  values->reserve(program_.var_id_limit());
  for (uint32_t i = 0; i < program_.var_id_limit(); ++i) {
    values->push_back(FirstValue(program_.var(VarId(i))));
  }
  for (const auto& [var, value] : carried_) (*values)[var.value()] = value;
}

std::vector<Placement> RankSteps::FirstPlacements() const {
  std::vector<Placement> placements;
  placements.reserve(program_.var_id_limit());
  for (uint32_t i = 0; i < program_.var_id_limit(); ++i) {
    placements.push_back(FirstPlacement(program_.var(VarId(i))));
  }
  return placements;
}

bool RankSteps::CarryOver(Widening widening) {
  bool changed = false;
  for (size_t i = 0; i < memory_.values().size(); ++i) {
    const VarId id(static_cast<uint32_t>(i));
    const Var var = program_.var(id);
    if (!memory_.IsHeld(id) || !memory_.OutlivesStep(id)) continue;
    const auto found = carried_.find(id);
    RankValue start = found == carried_.end() ? FirstValue(var) : found->second;
    RankValue end = memory_.values()[i];
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
    start.drawn_by = OpId();
    start.terms = 0;
    start.expr = before.expr;
    if (!start.is_gradient) {
      start.factor = 1;
      start.unscaled_sums = 0;
    } else if (end.local_factor != 0) {
      // Of what the step adds, the part that comes from ranks: one device has the other factors,
      // too.
      start.factor = std::pow(options_.RankFactor(), start.unscaled_sums);
    }
    start.local_factor = 0;
    carried_[id] = start;
    changed = true;
  }
  return changed;
}

}  // namespace weft
