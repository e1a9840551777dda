#include "ops/analysis/rank_steps.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/analysis/rank_count.h"

namespace weft {
namespace {

using Place = RankValue::Place;

bool IsDistributed(const Var& var, const RankValuesOptions& options) {
  return !options.distributed_params.empty() &&
         options.distributed_params.count(std::string(var.name())) > 0;
}

}  // namespace

std::vector<RankValue> ValuesAtFirstStep(const Program& program, const RankValuesOptions& options) {
  std::vector<RankValue> start(program.var_id_limit());
  const RankCount ranks(options);
  for (size_t i = 0; i < program.var_id_limit(); ++i) {
    const Var var = program.var(VarId(static_cast<uint32_t>(i)));
    RankValue& value = start[i];
    const bool has_expression = options.table != nullptr && options.first_expression == 0;
    if (has_expression && (var.persistable() || var.need_check_feed())) {
      value.expr = options.table->Initial(var.name());
    }
    if (ranks.IsOne()) continue;
    const int type = var.type();
    // What no op has written when it is read is data, marked as such or not.
    const bool is_data = !var.persistable() && !options.is_startup;
    if (is_data || var.need_check_feed() || type == pb::VarType::FEED_MINIBATCH ||
        type == pb::VarType::READER || IsDistributed(var, options)) {
      value.place = Place::kLocal;
    } else if (options.start != nullptr && var.persistable()) {
      const auto found = options.start->find(var.name());
      if (found != options.start->end() && !found->second.IsSame()) {
        value.place = found->second.place;
      }
    }
  }
  return start;
}

bool CarryOver(const Program& program, const RankMemory& end_of_step, bool widen,
               std::vector<RankValue>* start_values) {
  bool changed = false;
  for (size_t i = 0; i < start_values->size(); ++i) {
    const VarId id(static_cast<uint32_t>(i));
    const Var var = program.var(id);
    if (!end_of_step.IsWritten(id) || !var.persistable()) continue;
    RankValue& start = (*start_values)[i];
    RankValue end = end_of_step.values()[i];
    if (widen && !(start.place == Place::kLocal && !start.is_gradient)) {
      end = RankValue();
      end.place = Place::kLocal;
    } else if (end.IsSame()) {
      continue;
    }
    // What is added to a parameter is no gradient that is accumulated.
    if (var.is_parameter()) end.is_gradient = end.is_summed = false;
    const bool was_own = start.place == end.place;
    if (was_own && start.is_gradient <= end.is_gradient && start.is_summed <= end.is_summed) {
      continue;
    }
    const RankValue before = start;
    start = end;
    start.is_gradient = end.is_gradient && (!was_own || before.is_gradient);
    start.is_summed = end.is_summed && (!was_own || before.is_summed);
    start.is_mixed = start.has_met = false;
    start.terms = 0;
    start.expr = before.expr;
    if (!start.is_gradient) {
      start.factor = 1;
      start.power = 0;
    } else if (end.own_factor != 0) {
      start.factor = end.own_factor;
    }
    start.own_factor = 0;
    changed = true;
  }
  return changed;
}

}  // namespace weft
