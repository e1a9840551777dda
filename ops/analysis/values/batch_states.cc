#include "absl/algorithm/container.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/analysis/values/batch_interpreter.h"
#include "proto/all_ops.h"

namespace weft {

void BatchInterpreter::SetStart() {
  const Block& root = program_.block(0);
  for (VarId id : FindData(program_)) start_[id] = BatchValue(Fed(program_.var(id).name()));
  for (const std::string& name : options_.zeros) {
    const VarId var = root.FindVar(name);
    if (var.valid()) start_[var].is_zero = true;
  }
  for (const std::string& name : options_.affected) {
    const VarId var = root.FindVar(name);
    if (var.valid()) start_[var].is_affected = true;
  }
}

void BatchInterpreter::FindStates() {
  for (const Var& var : AllVars(program_)) {
    if (walk_.OutlivesStep(var.id())) states_.push_back(var.id());
  }
}

void BatchInterpreter::FindAveragedParameters() {
  if (options_.extent == BatchFlowOptions::Extent::kToLosses) return;
  absl::flat_hash_set<VarId> params, reduced;
  const auto resolve = [&](const Op& op, absl::Span<const Symbol> names) {
    std::vector<VarId> vars;
    for (Symbol name : names) {
      const VarId var = program_.block(op.block()).Resolve(name);
      if (var.valid()) vars.push_back(var);
    }
    return vars;
  };
  for (const Op& op : AllOps(program_)) {
    const SignatureFacts& facts = FactsOf(op);
    if (facts.kind == SignatureFacts::Kind::kCollective) {
      const CollectiveOp& collective = *FindCollectiveOp(op);
      if (collective.kind != CollectiveKind::kAllReduce) continue;
      for (VarId var : resolve(op, collective.Inputs(op))) reduced.insert(var);
    } else if (facts.param.count > 0) {
      for (const char* slot : {"Param", "MasterParam"}) {
        for (VarId var : resolve(op, op.Input(slot))) params.insert(var);
      }
    }
  }
  for (const Storage::Buffer& buffer : walk_.storage().buffers()) {
    if (!reduced.contains(buffer.var)) continue;
    reduced.insert(buffer.part_vars.begin(), buffer.part_vars.end());
  }
  // Parameters may be copied into what is reduced, and back.
  for (const Op& op : AllOps(program_)) {
    const Algebra algebra = FactsOf(op).algebra;
    if (algebra != Algebra::kCopy && algebra != Algebra::kCast && algebra != Algebra::kReshape) {
      continue;
    }
    if (absl::c_none_of(resolve(op, op.Input("X")),
                        [&](VarId var) { return reduced.contains(var); })) {
      continue;
    }
    for (VarId var : resolve(op, op.Output("Out"))) reduced.insert(var);
  }
  for (VarId var : params) {
    if (reduced.contains(var)) averaged_.insert(var);
  }
}

BatchRelation BatchInterpreter::Fed(absl::string_view name) const {
  const auto layout = options_.feeds.find(std::string(name));
  const bool is_split = layout != options_.feeds.end() && layout->second.axis.has_value();
  return is_split ? BatchRelation::Sharded(*layout->second.axis) : BatchRelation::Replicated();
}

void BatchInterpreter::Widen() {
  for (VarId id : states_) {
    const OpId writer = WriterOf(id);
    if (!walk_.IsHeld(id) || averaged_.contains(id)) continue;
    if (!writer.valid() || FactsOf(program_.op(writer)).param.count > 0) continue;
    const BatchValue unrelated(BatchRelation::Unrelated(), writer);
    BatchValue& start = start_[id];
    if (start.relation.IsSame()) flow_.states_.push_back({id, writer, unrelated});
    if (!start.relation.IsUnrelated()) start = unrelated;
    start.is_affected = true;
  }
}

bool BatchInterpreter::CarryOver(bool widens) {
  bool has_changed = false;
  for (VarId id : states_) {
    if (!walk_.IsHeld(id)) continue;
    const OpId writer = WriterOf(id);
    const BatchValue& end = walk_.at(id);
    if (averaged_.contains(id)) {
      // Between averages, the next step begins with other values: own_updates.
      if (!end.relation.IsSame() && is_apart_.insert(id).second) {
        flow_.states_.push_back({id, writer, end});
        has_changed = true;
      }
      continue;
    }
    BatchValue& start = start_[id];
    BatchValue next = start;
    Merge(end, &next, writer);
    if (next.relation == start.relation && next.is_affected == start.is_affected) {
      // Of a state that is the same otherwise.
      has_changed = has_changed || (start.is_zero && !next.is_zero);
      start.is_zero = next.is_zero;
      continue;
    }
    if (widens) next = BatchValue(BatchRelation::Unrelated(), writer);
    next.is_affected = next.is_affected || widens;
    if (start.relation.IsSame() && !next.relation.IsSame()) {
      flow_.states_.push_back({id, writer, end});
    }
    start = next;
    has_changed = true;
  }
  return has_changed;
}

void BatchInterpreter::VisitOptimizer(const Op& op, const SignatureFacts& facts) {
  if (UpdatesAveraged(op)) return VisitOwnUpdate(op, facts);
  for (Symbol name : op.args(facts.grad)) {
    const BatchValue gradient = Read(name);
    if (!gradient.relation.IsSame()) flow_.updates_.push_back({op.id(), name, gradient});
  }
  is_guessed_ = false;
  WriteAll(op, op.output_args(), BatchValue());
}

void BatchInterpreter::VisitOwnUpdate(const Op& op, const SignatureFacts& facts) {
  ReadInputs(op);
  const std::vector<BatchRelation>& made = visited_[Apply(op, facts.schema)].outputs.relations;
  const bool is_linear = is_apart_.empty() && absl::c_none_of(made, [](BatchRelation relation) {
                           return relation.IsUnrelated();
                         });
  if (!is_linear) {
    flow_.own_updates_.push_back(op.id());
    is_affected_ = true;
  }
  for (size_t i = 0; i < op.output_args().size(); ++i) {
    Write(op, op.output_args()[i], BatchValue(is_linear ? made[i] : BatchRelation::Partial()));
  }
}

bool BatchInterpreter::UpdatesAveraged(const Op& op) const {
  if (averaged_.empty()) return false;
  for (const char* slot : {"Param", "MasterParam"}) {
    for (Symbol name : op.Input(slot)) {
      if (averaged_.contains(Resolve(name))) return true;
    }
  }
  return false;
}

}  // namespace weft
