#include "ops/analysis/core/updates.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// An update of several parameters at a time gives several.
void AddUpdates(const Program& program, const Op& op, const OpSchema* schema,
                std::vector<ParamUpdate>* updates) {
  const absl::Span<const Symbol> params = op.Input("Param");
  for (size_t i = 0; i < params.size(); ++i) {
    ParamUpdate update;
    update.op = op.id();
    update.param = params[i];
    const auto take = [&](absl::string_view slot) {
      const absl::Span<const Symbol> args = op.Output(slot);
      return i < args.size() && program.name(args[i]) != kEmptyVarName ? args[i] : Symbol();
    };
    update.master = take("MasterParamOut");
    if (schema != nullptr) {
      for (const SlotSchema& slot : schema->outputs()) {
        if (slot.in_place_of.empty()) continue;
        if (slot.in_place_of == "Param" || slot.in_place_of == "MasterParam") continue;
        const Symbol state = take(slot.name);
        if (state.valid()) update.states.push_back(state);
      }
    }
    updates->push_back(std::move(update));
  }
}

// Visits ops in order, those of a sub-block in place of the op that runs it, which lists all that
// its block accesses.
template <typename Visit>
void ForEachOp(const Program& program, int block, std::vector<bool>* seen, const Visit& visit) {
  (*seen)[block] = true;
  for (const Op& op : BlockOps(program, block)) {
    const std::vector<int> sub_blocks = op.SubBlocks();
    if (sub_blocks.empty()) visit(op);
    for (int sub_block : sub_blocks) {
      if (!(*seen)[sub_block]) ForEachOp(program, sub_block, seen, visit);
    }
  }
}

template <typename Visit>
void ForEachOp(const Program& program, const Visit& visit) {
  std::vector<bool> seen(program.num_blocks(), false);
  ForEachOp(program, 0, &seen, visit);
}

bool IsForward(const Op& op) { return (op.role() & ~kRoleLoss) == kRoleForward; }

// Whether argument `name` of the op is a persistable floating-point variable of the root block.
bool IsPersistentFloat(const Op& op, Symbol name) {
  const Program& program = op.program();
  const VarId id = program.block(op.block()).Resolve(name);
  if (!id.valid() || program.var(id).block() != 0 || !program.var(id).persistable()) return false;
  const absl::optional<TensorType> type = DeclaredType(program.var(id));
  return type.has_value() && IsFloating(type->dtype);
}

// By symbol: parameters, master weights and states of optimizers.
std::vector<bool> UpdatedByOptimizers(const Program& program,
                                      absl::Span<const ParamUpdate> updates) {
  std::vector<bool> is_updated(program.symbols().size(), false);
  for (const ParamUpdate& update : updates) {
    is_updated[update.param.value()] = true;
    if (update.master.valid()) is_updated[update.master.value()] = true;
    for (Symbol state : update.states) is_updated[state.value()] = true;
  }
  return is_updated;
}

// Whether the schema of the op says that it rewrites `out`, one of its outputs, in place.
bool IsInPlaceBySchema(const Op& op, const OpSchema* schema, Symbol out) {
  return schema != nullptr && absl::c_any_of(schema->outputs(), [&](const SlotSchema& slot) {
           return !slot.in_place_of.empty() && absl::c_linear_search(op.Output(slot.name), out);
         });
}

// `symbols`, each once, without those that are excluded.
std::vector<Symbol> FirstOfEach(const std::vector<Symbol>& symbols, std::vector<bool> is_excluded) {
  std::vector<Symbol> kept;
  for (Symbol symbol : symbols) {
    if (is_excluded[symbol.value()]) continue;
    is_excluded[symbol.value()] = true;
    kept.push_back(symbol);
  }
  return kept;
}

}  // namespace

std::vector<ParamUpdate> FindUpdates(const Program& program) {
  std::vector<ParamUpdate> updates;
  OpTraits traits(program);
  for (const Op& op : AllOps(program)) {
    const OpSchema* schema = traits.SchemaOf(op);
    const bool known = schema != nullptr && schema->Has(Trait::kOptimizer);
    const bool looks_like_one = schema == nullptr && IsOptimize(op) && !op.Input("Param").empty() &&
                                !op.Output("ParamOut").empty();
    if (known || looks_like_one) AddUpdates(program, op, schema, &updates);
  }
  return updates;
}

absl::Status CheckIsStartup(const Program& program) {
  const std::vector<ParamUpdate> updates = FindUpdates(program);
  if (updates.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected a startup program, but ", program.op(updates[0].op).DebugName(),
                   " updates a parameter, as a main program does; the startup program is the one "
                   "that initializes parameters"));
}

std::vector<Symbol> FindRunningStatistics(const ProgramFacts& facts) {
  const Program& program = facts.program();
  std::vector<bool> is_excluded = UpdatedByOptimizers(program, facts.Get(FindUpdates));
  std::vector<Symbol> found;
  const OpTraits& traits = facts.Get<OpTraits>();
  ForEachOp(program, [&](const Op& op) {
    const bool is_forward = IsForward(op);
    const OpSchema* schema = traits.SchemaOf(op);
    for (Symbol out : op.output_args()) {
      if (!is_forward) {
        // A recomputed batch_norm has role backward.
        if (is_excluded[out.value()] || IsInPlaceBySchema(op, schema, out)) continue;
        is_excluded[out.value()] = true;
      } else if (absl::c_linear_search(op.input_args(), out) && IsPersistentFloat(op, out)) {
        const bool is_marked = program.var(program.block(0).FindVar(out)).is_parameter();
        if (is_marked && schema != nullptr && !IsInPlaceBySchema(op, schema, out)) continue;
        found.push_back(out);
      }
    }
  });
  return FirstOfEach(found, std::move(is_excluded));
}

std::vector<Symbol> FindTrainedByHand(const Program& program) {
  std::vector<Symbol> candidates;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (!var.persistable() || var.is_parameter() || absl::EndsWith(var.name(), kGradSuffix)) {
      continue;
    }
    const Symbol gradient = program.FindSymbol(absl::StrCat(var.name(), kGradSuffix));
    if (gradient.valid() && program.block(0).FindVar(gradient).valid()) {
      candidates.push_back(var.name_symbol());
    }
  }
  if (candidates.empty()) return candidates;
  std::vector<bool> is_written_by_forward(program.symbols().size(), false);
  ForEachOp(program, [&](const Op& op) {
    if (!IsForward(op)) return;
    for (Symbol out : op.output_args()) is_written_by_forward[out.value()] = true;
  });
  return FirstOfEach(candidates, std::move(is_written_by_forward));
}

std::vector<Symbol> FindManuallyUpdatedParams(const ProgramFacts& facts) {
  const Program& program = facts.program();
  std::vector<bool> is_excluded = UpdatedByOptimizers(program, facts.Get(FindUpdates));
  for (Symbol statistic : facts.Get(FindRunningStatistics)) is_excluded[statistic.value()] = true;
  std::vector<bool> is_param(program.symbols().size(), false);
  for (Symbol param : facts.Get(FindTrainedByHand)) is_param[param.value()] = true;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (var.is_parameter()) is_param[var.name_symbol().value()] = true;
  }
  std::vector<Symbol> found;
  const OpTraits& traits = facts.Get<OpTraits>();
  ForEachOp(program, [&](const Op& op) {
    // These pass parameters on as they are.
    if (traits.Has(op, Trait::kAlias) || traits.Has(op, Trait::kStreamSync)) return;
    for (Symbol out : op.output_args()) {
      if (is_param[out.value()] && IsPersistentFloat(op, out)) found.push_back(out);
    }
  });
  return FirstOfEach(found, std::move(is_excluded));
}

}  // namespace weft
