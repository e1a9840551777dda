#include "absl/algorithm/container.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/analysis/training/synchronized.h"
#include "ops/analysis/values/batch_interpreter.h"
#include "ops/schema/op_kinds.h"
#include "proto/all_ops.h"

namespace weft {

void BatchInterpreter::SetStart() {
  for (const Var& var : AllVars(program_)) {
    if (OutlivesStep(var.id())) states_.push_back(var.id());
  }
  const Block& root = program_.block(0);
  for (VarId id : facts_.Get(FindData)) start_[id] = BatchValue(Fed(program_.var(id).name()));
  // Ranks together have what one device has.
  for (const auto& [name, tensors] : options_.setting.shares) {
    const VarId var = root.FindVar(name);
    if (var.valid()) start_[var] = BatchValue(BatchRelation::Sharded(0));
  }
  for (const std::string& name : options_.zeros) {
    const VarId var = root.FindVar(name);
    if (var.valid()) start_[var].is_zero = true;
  }
  for (const std::string& name : options_.affected) {
    const VarId var = root.FindVar(name);
    if (var.valid()) start_[var].is_affected = true;
  }
}

void BatchInterpreter::BeginStep(std::vector<BatchValue>* values) {
  values->assign(program_.var_id_limit(), BatchValue());
  for (const auto& [var, value] : start_) (*values)[var.value()] = value;
  writers_.assign(program_.var_id_limit(), OpId());
  has_effect_.assign(program_.op_id_limit(), false);
  visits_of_ops_.assign(program_.op_id_limit(), kNotVisited);
  branches_.clear();
  flow_.effects_.clear();
  flow_.conditions_.clear();
  flow_.updates_.clear();
  flow_.fetches_.clear();
  flow_.forward_reductions_.clear();
  num_sums_.clear();
  num_gradient_sums_.clear();
  flow_.own_updates_.clear();
  flow_.loop_gradients_.clear();
}

void BatchInterpreter::FindAveragedParameters() {
  if (options_.extent == BatchFlowOptions::Extent::kToLosses) return;
  absl::flat_hash_set<VarId> params, reduced;
  const auto add = [&](const Op& op, absl::Span<const Symbol> names,
                       absl::flat_hash_set<VarId>* vars) {
    for (Symbol name : names) {
      const VarId var = program_.block(op.block()).Resolve(name);
      if (var.valid()) vars->insert(var);
    }
  };
  for (const Op& op : AllOps(program_)) {
    const SignatureFacts& facts = FactsOf(op);
    if (facts.kind == SignatureFacts::Kind::kCollective) {
      const CollectiveOp& collective = *FindCollectiveOp(op);
      if (collective.kind == CollectiveKind::kAllReduce) add(op, collective.Inputs(op), &reduced);
    } else if (facts.param.count > 0) {
      for (const char* slot : {"Param", "MasterParam"}) add(op, op.Input(slot), &params);
    }
  }
  for (const Storage::Buffer& buffer : storage().buffers()) {
    if (!reduced.contains(buffer.var)) continue;
    reduced.insert(buffer.part_vars.begin(), buffer.part_vars.end());
  }
  // Parameters may be copied into what is reduced, and back.
  for (const Op& op : AllOps(program_)) {
    const Algebra algebra = FactsOf(op).algebra;
    if (algebra != Algebra::kCopy && algebra != Algebra::kCast && algebra != Algebra::kReshape) {
      continue;
    }
    const auto is_reduced = [&](Symbol name) {
      return reduced.contains(program_.block(op.block()).Resolve(name));
    };
    if (absl::c_any_of(op.Input("X"), is_reduced)) add(op, op.Output("Out"), &reduced);
  }
  const absl::flat_hash_set<VarId> synchronized = FindSynchronized(facts_, options_.setting);
  for (VarId var : params) {
    if (reduced.contains(var) || synchronized.contains(var)) {
      averaged_.insert(var);
    }
  }
}

BatchRelation BatchInterpreter::Fed(absl::string_view name) const {
  const auto layout = options_.setting.feeds.find(std::string(name));
  const bool is_split = layout != options_.setting.feeds.end() && layout->second.axis.has_value();
  return is_split ? BatchRelation::Sharded(*layout->second.axis) : BatchRelation::Replicated();
}

bool BatchInterpreter::CarryOver(Widening widening) {
  bool has_changed = false;
  for (VarId id : states_) {
    if (!IsHeld(id)) continue;
    const OpId writer = WriterOf(id);
    const BatchValue& end = at(id);
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
    const bool is_kept = next.relation == start.relation && next.is_affected == start.is_affected;
    const bool is_updated = writer.valid() && FactsOf(program_.op(writer)).param.count > 0;
    if (is_kept && (widening != Widening::kAll || is_updated)) {
      // Of a state that is the same otherwise.
      has_changed = has_changed || (start.is_zero && !next.is_zero);
      start.is_zero = next.is_zero;
      continue;
    }
    if (widening != Widening::kNone) {
      next = BatchValue(BatchRelation::Unrelated(), writer);
      next.is_affected = true;
    }
    if (start.relation.IsSame() && !next.relation.IsSame()) {
      flow_.states_.push_back({id, writer, is_kept ? next : end});
    }
    start = next;
    has_changed = true;
  }
  return has_changed;
}

bool BatchInterpreter::IsUpdateByRightProduct(const Op& op, const SignatureFacts& facts) const {
  const absl::Span<const Symbol> rate = op.Input("LearningRate");
  if (!IsProductWithRate(op.type()) || facts.grad.count != 1 || rate.size() != 1) return false;
  const BatchRelation of_gradient = Read(op.args(facts.grad)[0]).relation;
  const BatchRelation of_rate = Read(rate[0]).relation;
  return of_gradient.IsReplicated() && of_rate.IsReplicated() &&
         of_gradient.power + of_rate.power == 0;
}

void BatchInterpreter::VisitOptimizer(const Op& op, const SignatureFacts& facts) {
  if (UpdatesAveraged(op)) return VisitOwnUpdate(op, facts);
  // Parts of a parameter are updated by the same parts of its gradient, and stay parts.
  const auto is_part = [](const BatchValue& value) {
    return value.relation == BatchRelation::Sharded(0);
  };
  const absl::Span<const Symbol> params = op.args(facts.param);
  const bool updates_parts = !params.empty() && is_part(Read(params[0]));
  const bool is_right_product = IsUpdateByRightProduct(op, facts);
  is_guessed_ = false;
  for (const OpSignature::Slot& slot : op.signature().inputs) {
    const bool is_gradient = slot.name == facts.grad.name, is_param = slot.name == facts.param.name;
    if (is_right_product && !is_param) continue;
    for (Symbol name : op.args(slot)) {
      BatchValue value = Read(name);
      if (is_gradient && RescalesByRanks(op, facts, value)) {
        value.relation = value.relation.Times(-1);
        value.is_guessed = true;
      }
      const bool may_be_whole = !updates_parts || !(is_gradient || is_param);
      const bool is_right =
          (updates_parts && is_part(value)) || (may_be_whole && value.relation.IsSame());
      if (!is_right) flow_.updates_.push_back({op.id(), name, is_gradient, value});
    }
  }
  for (Symbol name : op.output_args()) {
    const bool stays_part = updates_parts && is_part(Read(name));
    Write(op, name, stays_part ? BatchValue(BatchRelation::Sharded(0)) : BatchValue());
  }
}

void BatchInterpreter::VisitOwnUpdate(const Op& op, const SignatureFacts& facts) {
  ReadInputs(op);
  const std::vector<BatchRelation>& made = visited_[Apply(op, facts)].outputs.relations;
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
