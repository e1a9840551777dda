#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/analysis/values/batch_interpreter.h"
#include "ops/schema/batch_rules.h"
#include "proto/op_role.h"

namespace weft {

void BatchInterpreter::VisitGradient(const Op& op, const SignatureFacts& facts) {
  ReadInputs(op);
  const absl::Span<const Symbol> out = op.output_args();
  uint32_t& visited = visits_of_ops_[op.id().value()];
  bool has_operand = false, are_zero = true;
  for (size_t i = 0; i < ins_.size(); ++i) {
    if (!facts.is_operand[i]) continue;
    has_operand = true;
    are_zero &= ins_[i].is_zero;
  }
  if (AreSame(ins_)) {
    visited = kAllSame;
    return WriteAll(op, out, BatchValue(kSame, OpId(), has_operand && are_zero));
  }
  if (has_operand && are_zero) return WriteZeros(op, facts);
  if (of_absent_ops_.contains(op.id())) return TakeAtItsName(op, facts);
  const OpId differentiated = FindDifferentiated(op, facts);
  if (!differentiated.valid()) {
    const BatchRelation relation = ProductWithGradient(op, facts);
    RecordLostRelation(op, {relation});
    BatchValue product = Made(op, relation, ins_);
    product.is_gradient = !relation.IsUnrelated();
    return WriteAll(op, out, product);
  }
  visited = FollowGradient(op, program_.op(differentiated));
  RecordLostRelation(op, visited_[visited].outputs.relations);
  // What makes gradients unrelated may be the op itself.
  const bool has_lost = HasLostRelation(program_.op(differentiated));
  for (size_t i = 0; i < out.size(); ++i) {
    BatchValue gradient = Made(op, visited_[visited].outputs.relations[i], ins_);
    if (has_lost && gradient.cause == op.id()) gradient.cause = differentiated;
    gradient.is_gradient = !gradient.relation.IsUnrelated();
    Write(op, out[i], gradient);
  }
}

BatchRelation BatchInterpreter::ProductWithGradient(const Op& op,
                                                    const SignatureFacts& facts) const {
  const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
  const OpSchema* const schema = FindOpSchema(absl::StripSuffix(op.type(), "_grad"));
  const auto gradient = absl::c_find(facts.is_operand, true);
  if (schema == nullptr || !ComputesElements(*schema) || out.size() != 1 ||
      absl::c_count(facts.is_operand, true) != 1) {
    return BatchRelation::Unrelated();
  }
  const size_t first = gradient - facts.is_operand.begin();
  const BatchRelation relation = ins_[first].relation;
  const VarId product = Resolve(out[0]), multiplied = Resolve(in[first]);
  // An operand that repeats has the sum for its gradient.
  if (!relation.IsSharded() || !product.valid() || !multiplied.valid() ||
      !HaveOneShape(product, multiplied)) {
    return BatchRelation::Unrelated();
  }
  const int operand = facts.forward_input[0];
  // An operand that is declared as long as the batch may repeat, too, as the same on all ranks.
  if (operand >= 0 && ins_[operand].relation != BatchRelation::Sharded(relation.axis)) {
    return BatchRelation::Unrelated();
  }
  const absl::optional<TensorType>& type = types_.type(type_ids_[product.value()]);
  for (size_t i = 0; i < in.size(); ++i) {
    if (i == first || ins_[i].relation.IsSame()) continue;
    const VarId var = Resolve(in[i]);
    const absl::optional<TensorType> of_factor =
        var.valid() ? types_.type(type_ids_[var.value()]) : absl::nullopt;
    const bool is_aligned =
        type.has_value() && of_factor.has_value() && type->dims.size() == of_factor->dims.size();
    if (ins_[i].relation != BatchRelation::Sharded(relation.axis) || !is_aligned) {
      return BatchRelation::Unrelated();
    }
  }
  return relation;
}

void BatchInterpreter::WriteZeros(const Op& op, const SignatureFacts& facts) {
  const OpId found = FindDifferentiated(op, facts);
  const GradientLinks* const links = found.valid() ? LinksOf(program_.op(found), op) : nullptr;
  for (size_t i = 0; i < op.output_args().size(); ++i) {
    const bool is_linked = links != nullptr && links->outputs[i] != GradientLinks::kNone;
    const BatchRelation of =
        is_linked ? RelationOf(program_.op(found), links->outputs[i]) : BatchRelation(kSame);
    Write(op, op.output_args()[i],
          BatchValue(of.IsSharded() ? BatchRelation::Sharded(of.axis) : BatchRelation(kSame),
                     OpId(), /*is_zero=*/true));
  }
}

bool BatchInterpreter::HasLostRelation(const Op& visited) const {
  const Visited& found = visited_[visits_of_ops_[visited.id().value()]];
  return absl::c_any_of(found.outputs.relations, IsLost) && absl::c_none_of(found.inputs, IsLost);
}

OpId BatchInterpreter::FindDifferentiated(const Op& op, const SignatureFacts& facts) {
  const auto was_visited = [&](OpId id) { return visits_of_ops_[id.value()] != kNotVisited; };
  OpId by_name;
  for (size_t i = 0; i < op.input_args().size(); ++i) {
    if (!facts.is_operand[i]) continue;
    const Symbol name = gradient_names_.DifferentiatedName(op.input_args()[i]);
    const OpId writer = name.valid() ? WriterOf(Resolve(name)) : OpId();
    if (!writer.valid() || !was_visited(writer)) continue;
    const Op differentiated = program_.op(writer);
    const GradientLinks* const links = LinksOf(differentiated, op);
    if (links == nullptr) continue;
    if (HasArgumentsOf(differentiated, op, *links)) return writer;
    by_name = writer;
  }
  const OpId found = differentiated_.Find(op, was_visited);
  if (found.valid()) return found;
  if (by_name.valid()) return by_name;
  // A schedule may put the op after its gradient op, which does not read what it computes.
  const OpId later = differentiated_.Find(op, [&](OpId id) { return !was_visited(id); });
  return later.valid() && VisitAhead(program_.op(later)) ? later : OpId();
}

bool BatchInterpreter::VisitAhead(const Op& op) {
  if (op.block() != block() || FactsOf(op).kind != SignatureFacts::Kind::kFunction) return false;
  const auto is_known = [&](Symbol name) {
    const VarId var = Resolve(name);
    return var.valid() &&
           (IsHeld(var) || program_.var(var).persistable() || start_.find(var) != start_.end());
  };
  const auto is_new = [&](Symbol name) {
    const VarId var = Resolve(name);
    return !var.valid() || (!IsHeld(var) && !program_.var(var).persistable());
  };
  if (!absl::c_all_of(op.input_args(), is_known) || !absl::c_all_of(op.output_args(), is_new)) {
    return false;
  }
  std::vector<BatchValue> ins = std::move(ins_);
  const bool is_affected = is_affected_, is_guessed = is_guessed_;
  Visit(op);
  ins_ = std::move(ins);
  is_affected_ = is_affected;
  is_guessed_ = is_guessed;
  return visits_of_ops_[op.id().value()] != kNotVisited;
}

const GradientLinks* BatchInterpreter::LinksOf(const Op& differentiated, const Op& op) {
  LastLinks& last = last_links_[op.signature_id()];
  const uint32_t signature = differentiated.signature_id();
  if (last.differentiated == signature) return last.links;
  const auto [it, is_new] = links_.try_emplace({signature, op.signature_id()});
  if (is_new) it->second = LinkGradient(differentiated, op);
  last = {signature, it->second.has_value() ? &*it->second : nullptr};
  return last.links;
}

uint32_t BatchInterpreter::FollowGradient(const Op& op, const Op& differentiated) {
  const GradientLinks& links = *LinksOf(differentiated, op);
  const uint32_t of = visits_of_ops_[differentiated.id().value()];
  numbers_.clear();
  AddRelationsToKey();
  numbers_.push_back(of);
  if (of == kAllSame) {
    const std::string key(keys_.Of(differentiated, {}));
    numbers_.push_back(key_ids_.emplace(key, key_ids_.size()).first->second);
  }
  FindInputKinds(op, differentiated, links);
  for (InputKind kind : kinds_) numbers_.push_back(static_cast<uint32_t>(kind));
  const absl::string_view key = keys_.Of(op, numbers_);
  const auto found = visited_of_.find(key);
  if (found != visited_of_.end()) return found->second;
  const uint32_t visited = static_cast<uint32_t>(visited_.size());
  visited_of_.emplace(key, visited);
  visited_.push_back(Differentiate(op, differentiated, links));
  return visited;
}

BatchInterpreter::Visited BatchInterpreter::Differentiate(const Op& op, const Op& differentiated,
                                                          const GradientLinks& links) {
  Visited visited;
  for (const BatchValue& in : ins_) visited.inputs.push_back(in.relation);
  visited.outputs.relations.resize(links.outputs.size(), BatchRelation::Unrelated());
  if (!AttributesAgree(differentiated, op) || !IsAdjoint(differentiated, links)) return visited;
  const absl::optional<int> power = LossPowerOf(differentiated, links);
  if (!power.has_value()) return visited;
  // A partial value has its shape on all ranks.
  const bool reads_shapes =
      IsLinearInAllInputs(differentiated, FindOpSchema(differentiated.type()));
  bool are_equal = true;
  for (size_t i = 0; i < ins_.size(); ++i) {
    const BatchRelation in = ins_[i].relation;
    const bool is_shape = reads_shapes && kinds_[i] == InputKind::kValue && in.IsPartial();
    are_equal = are_equal && (in.IsReplicated() || is_shape);
  }
  for (size_t i = 0; i < links.outputs.size(); ++i) {
    if (links.outputs[i] == GradientLinks::kNone) continue;
    BatchRelation gradient = GradientRelation(RelationOf(differentiated, links.outputs[i]), *power);
    // The mean of equal values.
    if (are_equal && gradient.IsPartial()) gradient = BatchRelation::Replicated(gradient.power);
    visited.outputs.relations[i] = gradient;
  }
  return visited;
}

void BatchInterpreter::FindInputKinds(const Op& op, const Op& differentiated,
                                      const GradientLinks& links) {
  kinds_.clear();
  for (size_t i = 0; i < ins_.size(); ++i) {
    const Symbol name = op.input_args()[i];
    const GradientLinks::Input& input = links.inputs[i];
    if (name == empty_ || (input.is_gradient && ins_[i].is_zero)) {
      kinds_.push_back(InputKind::kAbsent);
    } else if (input.argument == GradientLinks::kNone) {
      kinds_.push_back(input.is_gradient ? InputKind::kOther : InputKind::kUnlinked);
    } else if (input.is_gradient) {
      kinds_.push_back(InputKind::kGradient);
    } else {
      const InputKind kind = ValueKind(name, ins_[i].is_zero, differentiated, input.argument);
      const bool is_unread =
          kind == InputKind::kValue && IsUnread(op, differentiated, links, input.argument);
      kinds_.push_back(is_unread ? InputKind::kAbsent : kind);
    }
  }
}

bool BatchInterpreter::IsUnread(const Op& op, const Op& differentiated, const GradientLinks& links,
                                uint32_t argument) {
  const SignatureFacts& facts = FactsOf(differentiated);
  const auto makes_gradient_of = [&](uint32_t operand) {
    for (size_t i = 0; i < links.outputs.size(); ++i) {
      if (links.outputs[i] == operand && op.output_args()[i] != empty_) return true;
    }
    return false;
  };
  if (facts.algebra == Algebra::kMultiply) {
    return (argument == facts.x && !makes_gradient_of(facts.y)) ||
           (argument == facts.y && !makes_gradient_of(facts.x));
  }
  return facts.algebra == Algebra::kDivide && argument != facts.y && !makes_gradient_of(facts.y);
}

bool BatchInterpreter::HaveOneShape(VarId a, VarId b) const {
  const TypeId of_a = type_ids_[a.value()], of_b = type_ids_[b.value()];
  if (a == b || of_a == of_b) return true;
  const absl::optional<TensorType>&type_a = types_.type(of_a), &type_b = types_.type(of_b);
  return type_a.has_value() && type_b.has_value() && type_a->kind == type_b->kind &&
         type_a->dims == type_b->dims;
}

BatchInterpreter::InputKind BatchInterpreter::ValueKind(Symbol name, bool is_zero, const Op& op,
                                                        uint32_t argument) const {
  const VarId var = Resolve(name), other = Resolve(op.args()[argument]);
  if (!var.valid() || !other.valid()) return InputKind::kOther;
  const bool is_output = argument >= op.input_args().size();
  if (is_output && var == other && WriterOf(var) == op.id()) return InputKind::kOutput;
  if (!HaveOneShape(var, other)) return InputKind::kOther;
  return is_zero ? InputKind::kZero : InputKind::kValue;
}

bool BatchInterpreter::IsAdjoint(const Op& differentiated, const GradientLinks& links) const {
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const BatchRelation in = ins_[i].relation;
    if (kinds_[i] == InputKind::kOther) return false;
    if (kinds_[i] == InputKind::kUnlinked && !in.IsSame()) return false;
    if (kinds_[i] != InputKind::kValue) continue;
    const BatchRelation found = RelationOf(differentiated, links.inputs[i].argument);
    if (found.IsUnrelated() || in != found) return false;
  }
  return true;
}

absl::optional<int> BatchInterpreter::LossPowerOf(const Op& differentiated,
                                                  const GradientLinks& links) const {
  absl::optional<int> power;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i] != InputKind::kGradient) continue;
    const absl::optional<int> here =
        LossPower(RelationOf(differentiated, links.inputs[i].argument), ins_[i].relation);
    if (!here.has_value() || (power.has_value() && *power != *here)) return absl::nullopt;
    power = here;
  }
  return power;
}

BatchRelation BatchInterpreter::RelationOf(const Op& visited, uint32_t argument) const {
  const uint32_t index = visits_of_ops_[visited.id().value()];
  if (index == kAllSame) return kSame;
  const size_t num_inputs = visited.input_args().size();
  return argument < num_inputs ? visited_[index].inputs[argument]
                               : visited_[index].outputs.relations[argument - num_inputs];
}

void BatchInterpreter::VisitBranchGrad(const Op& op) {
  const std::vector<int> blocks = op.SubBlocks();
  const int inside = blocks.size() == 1 ? blocks[0] : 0;
  const auto branch = branches_.find(program_.block(inside).forward_block_idx());
  if (inside == 0 || branch == branches_.end() ||
      program_.op(branch->second).Input("Cond") != op.Input("Cond")) {
    WalkBlocks(op, /*runs_alike=*/false);
    return WriteAll(op, op.output_args(), BatchValue(BatchRelation::Unrelated(), op.id()));
  }
  const bool runs_alike =
      absl::c_all_of(op.Input("Cond"), [&](Symbol name) { return Read(name).relation.IsSame(); });
  WalkBlocks(op, runs_alike);
  const BatchValue unknown(BatchRelation::Unrelated(), branch->second);
  const absl::Span<const Symbol> inputs = op.Input("Input"),
                                 outputs = op.Output(absl::StrCat("Input", kGradSuffix));
  for (size_t i = 0; i < std::min(inputs.size(), outputs.size()); ++i) {
    // Zeros where the block does not run, or has no gradient.
    const Symbol name = program_.FindSymbol(absl::StrCat(program_.name(inputs[i]), kGradSuffix));
    const VarId gradient = name.valid() ? program_.block(inside).FindVar(name) : VarId();
    if (!runs_alike) {
      Write(op, outputs[i], unknown);
    } else {
      Write(op, outputs[i],
            gradient.valid() ? Read(gradient) : BatchValue(kSame, OpId(), /*is_zero=*/true));
    }
  }
}

void BatchInterpreter::TakeAtItsName(const Op& op, const SignatureFacts& facts) {
  ReadInputs(op);
  const absl::Span<const Symbol> out = op.output_args();
  std::vector<BatchValue> gradients(out.size());
  BatchValue none(BatchRelation::Unrelated());
  const absl::optional<int> power =
      AreSame(ins_) ? absl::make_optional(0) : LossPowerByNames(op, &none.cause);
  for (size_t i = 0; i < out.size() && !AreSame(ins_); ++i) {
    const int input = facts.forward_input[i];
    const Symbol of =
        input >= 0 ? op.input_args()[input] : gradient_names_.DifferentiatedName(out[i]);
    if (!power.has_value() || !of.valid()) {
      gradients[i] = power.has_value() ? BatchValue(none.relation, op.id()) : none;
      continue;
    }
    const BatchValue value = Read(of);
    gradients[i] = Made(op, GradientRelation(value.relation, *power), {value});
    gradients[i].is_gradient = !gradients[i].relation.IsUnrelated();
  }
  // What the block of a loop writes besides.
  for (int i = 0; i < kMaxIterations && !op.SubBlocks().empty(); ++i) {
    if (!WalkBlocks(op, /*runs_alike=*/i + 1 < kMaxIterations)) break;
  }
  for (size_t i = 0; i < out.size(); ++i) Write(op, out[i], gradients[i]);
}

absl::optional<int> BatchInterpreter::LossPowerByNames(const Op& op, OpId* cause) {
  absl::optional<int> power;
  *cause = op.id();
  for (const OpSignature::Slot& slot : op.signature().inputs) {
    if (!absl::EndsWith(program_.name(slot.name), kGradSuffix)) continue;
    for (Symbol name : op.args(slot)) {
      const BatchValue gradient = Read(name);
      const VarId var = Resolve(name);
      // A loop takes gradients that nothing has written for zeros.
      if (gradient.is_zero || (var.valid() && !IsHeld(var))) continue;
      const Symbol of = gradient_names_.DifferentiatedName(name);
      const BatchValue value = of.valid() ? Read(of) : BatchValue(BatchRelation::Unrelated());
      for (const BatchValue& read : {gradient, value}) {
        if (!read.relation.IsUnrelated()) continue;
        if (read.cause.valid()) *cause = read.cause;
        return absl::nullopt;
      }
      const absl::optional<int> here = LossPower(value.relation, gradient.relation);
      if (!here.has_value() || (power.has_value() && *power != *here)) return absl::nullopt;
      power = here;
    }
  }
  return power;
}

}  // namespace weft
