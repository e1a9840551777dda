#include "ops/analysis/updates.h"

#include <algorithm>

#include "ops/analysis/op_traits.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"

namespace weft {
namespace {

bool IsEmpty(const Program& program, Symbol symbol) {
  return program.name(symbol) == kEmptyVarName;
}

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
      return i < args.size() && !IsEmpty(program, args[i]) ? args[i] : Symbol();
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

}  // namespace

std::vector<ParamUpdate> FindUpdates(const Program& program) {
  std::vector<ParamUpdate> updates;
  OpTraits traits(program);
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      const OpSchema* schema = traits.SchemaOf(op);
      const bool known = schema != nullptr && schema->Has(Trait::kOptimizer);
      const bool looks_like_one = schema == nullptr && IsOptimize(op) &&
                                  !op.Input("Param").empty() && !op.Output("ParamOut").empty();
      if (known || looks_like_one) AddUpdates(program, op, schema, &updates);
    }
  }
  return updates;
}

std::vector<Symbol> FindRunningStatistics(const Program& program) {
  std::vector<Symbol> found;
  std::vector<bool> seen(program.symbols().size(), false);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if ((op.role() & ~kRoleLoss) != kRoleForward) continue;
    const absl::Span<const Symbol> inputs = op.input_args();
    for (Symbol symbol : op.output_args()) {
      if (seen[symbol.value()]) continue;
      if (std::find(inputs.begin(), inputs.end(), symbol) == inputs.end()) continue;
      seen[symbol.value()] = true;
      const VarId var = program.block(0).FindVar(symbol);
      if (!var.valid() || !program.var(var).persistable()) continue;
      const absl::optional<TensorType> type = DeclaredType(program.var(var));
      if (type.has_value() && IsFloating(type->dtype)) found.push_back(symbol);
    }
  }
  return found;
}

}  // namespace weft
