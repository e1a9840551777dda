#include "ops/analysis/values/batch_flow.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/values/batch_interpreter.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rescaled_gradients.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/schema/algebra.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_key.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/type_table.h"
#include "ops/schema/uniform_values.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// Whether a factor is 1/n, for n > 1 ranks.
bool IsNthPart(double factor, int n) { return n > 1 && SameFactor(factor * n, 1); }

// Whether the gradient of a loss begins with it.
bool FillsNthPart(const Op& op, int n) {
  const absl::optional<double> number = FilledNumber(op);
  const bool fills =
      op.input_args().empty() || AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kFill;
  return fills && IsLossGrad(op) && IsBackward(op) && number.has_value() && IsNthPart(*number, n);
}

// Whether a value that is either zeros or `other` has the relation of `other`. Zeros of a fixed
// shape have not, where the shape of `other` varies with the batch.
bool JoinsZeros(BatchRelation zeros, BatchRelation other) {
  const auto varies = [](BatchRelation r) {
    return r.IsSharded() || r.kind == BatchRelation::Kind::kShape;
  };
  if (zeros.IsUnrelated()) return other.IsUnrelated();
  return (!varies(zeros) && !varies(other)) || zeros.WithoutPower() == other.WithoutPower();
}

}  // namespace

BatchRelation AfterEdit(BatchInputEdit edit, BatchRelation in) {
  switch (edit) {
    case BatchInputEdit::kAverage:
      return AfterCollective({"", CollectiveKind::kAllReduce, Reduction::kAvg, ""}, in);
    case BatchInputEdit::kSum:
      return AfterCollective({"", CollectiveKind::kAllReduce, Reduction::kSum, ""}, in);
    case BatchInputEdit::kGather:
      return AfterCollective({"", CollectiveKind::kAllGather, Reduction::kSum, ""}, in);
    case BatchInputEdit::kDivide:
      break;
  }
  return in.Times(-1);
}

BatchInterpreter::BatchInterpreter(const ProgramFacts& facts, const BatchFlowOptions& options)
    : StepWalk<BatchValue>(facts),
      options_(options),
      empty_(program_.FindSymbol(kEmptyVarName)),
      keys_(program_),
      visited_(kAllSame + 1),
      differentiated_(program_),
      gradient_names_(program_, GradSuffix::kLast),
      loss_gradients_(program_),
      reduces_for_all_(facts.Get(FindReducesForAll)),
      constant_factors_(program_, facts.Get<SignatureTable>(), options.setting.nranks),
      last_links_(program_.num_signatures()),
      type_ids_(DeclaredTypes(program_, &types_)),
      has_lost_(program_.op_id_limit(), false) {
  flow_.absent_gradients_ = facts.Get(GradientsOfAbsentOps);
  of_absent_ops_.insert(flow_.absent_gradients_.begin(), flow_.absent_gradients_.end());
  if (options.original != nullptr) FindOwnScalings(*options.original);
}

BatchFlow BatchInterpreter::Run() {
  SetStart();
  FindAveragedParameters();
  WalkSteps(/*is_once=*/options_.extent != BatchFlowOptions::Extent::kAllSteps);
  flow_.values_ = TakeValues();
  flow_.is_written_ = is_held();
  return std::move(flow_);
}

BatchValue BatchInterpreter::Read(Symbol name) const {
  const VarId var = Resolve(name);
  return var.valid() ? Read(var) : BatchValue();
}

BatchValue BatchInterpreter::Read(VarId var) const {
  const absl::Span<const VarId> parts = PartsOf(var);
  if (parts.empty()) return at(var);
  BatchValue joined = at(parts[0]);
  for (VarId part : parts) Merge(at(part), &joined, OpId());
  return joined;
}

void BatchInterpreter::Write(const Op& op, Symbol name, const BatchValue& value) {
  const VarId var = Resolve(name);
  if (!var.valid()) return;
  const absl::Span<const VarId> parts = PartsOf(var);
  if (parts.empty()) return Write(op, var, value);
  for (VarId part : parts) Write(op, part, value);
}

void BatchInterpreter::Write(const Op& op, VarId var, const BatchValue& value) {
  BatchValue written = value;
  written.is_guessed |= is_guessed_;
  if (options_.follow_effects) written.is_affected |= is_affected_ || value.relation.IsUnrelated();
  StepWalk::Write(var, written);
  writers_[var.value()] = op.id();
  if (!options_.edits.reductions.empty()) ReduceInPlace(op, var);
}

void BatchInterpreter::ReduceInPlace(const Op& op, VarId var) {
  const auto reduction = options_.edits.reductions.find(var);
  if (reduction == options_.edits.reductions.end() || IsBackward(op)) return;
  BatchValue& value = at(var);
  value.relation =
      AfterCollective({"", CollectiveKind::kAllReduce, reduction->second, ""}, value.relation);
}

void BatchInterpreter::WriteAll(const Op& op, absl::Span<const Symbol> names,
                                const BatchValue& value) {
  for (Symbol name : names) Write(op, name, value);
}

void BatchInterpreter::Merge(const BatchValue& from, BatchValue* into, OpId cause) {
  if (from.gathered_by != into->gathered_by) into->gathered_by = OpId();
  into->is_affected = into->is_affected || from.is_affected;
  into->is_guessed = into->is_guessed || from.is_guessed;
  const bool joins_zeros = (from.is_zero && JoinsZeros(from.relation, into->relation)) ||
                           (into->is_zero && JoinsZeros(into->relation, from.relation));
  if (joins_zeros) {
    const bool is_affected = into->is_affected, is_guessed = into->is_guessed;
    if (into->is_zero) *into = from;
    into->is_affected = is_affected;
    into->is_guessed = is_guessed;
    return;
  }
  const BatchRelation joined = Join(from.relation, into->relation);
  into->is_gradient = into->is_gradient && from.is_gradient;
  if (joined.IsUnrelated() && !into->relation.IsUnrelated()) {
    into->cause = from.relation.IsUnrelated() ? from.cause : cause;
  }
  into->relation = joined;
  into->is_zero = into->is_zero && from.is_zero;
  into->is_summed = into->is_summed || from.is_summed;
}

BatchValue BatchInterpreter::Made(const Op& op, BatchRelation relation,
                                  absl::Span<const BatchValue> ins) {
  BatchValue value(relation);
  if (!IsLost(relation)) return value;
  value.cause = op.id();
  for (const BatchValue& in : ins) {
    if (IsLost(in.relation)) {
      value.cause = in.cause;
      break;
    }
  }
  return value;
}

void BatchInterpreter::WalkStep() {
  if (options_.extent != BatchFlowOptions::Extent::kToLosses) return Walk(0);
  const absl::Span<const OpId> ops = program_.block(0).ops();
  const auto last = std::find_if(ops.rbegin(), ops.rend(), [&](OpId id) {
    // The gradient of a loss shows where one is whose op has lost its role.
    return (program_.op(id).role() & kRoleLoss) != 0;
  });
  WalkOps(ops.first(ops.rend() - last));
}

void BatchInterpreter::Visit(const Op& op) {
  is_affected_ = options_.follow_effects && absl::c_any_of(op.input_args(), [&](Symbol name) {
                   return Read(name).is_affected;
                 });
  is_guessed_ = has_guessed_ &&
                absl::c_any_of(op.input_args(), [&](Symbol name) { return Read(name).is_guessed; });
  StepWalk::Visit(op);
}

void BatchInterpreter::VisitIgnored(const Op& op) {
  if (!IsFetch(op.type())) return;
  for (Symbol name : op.input_args()) {
    const VarId var = Resolve(name);
    if (var.valid()) flow_.fetches_.push_back({op.id(), var, Read(var)});
  }
}

void BatchInterpreter::VisitFeed(const Op& op) {
  for (Symbol name : op.output_args()) Write(op, name, BatchValue(Fed(program_.name(name))));
}

void BatchInterpreter::AdaptZeros(const SignatureFacts& facts) {
  size_t other = 0;
  while (other < ins_.size() && (!facts.is_operand[other] || ins_[other].is_zero)) ++other;
  if (other == ins_.size()) return;
  for (size_t i = 0; i < ins_.size(); ++i) {
    if (!facts.is_operand[i] || !ins_[i].is_zero) continue;
    ins_[i].relation = ins_[i].relation.WithoutPower().Times(ins_[other].relation.power);
  }
}

bool BatchInterpreter::MakesZeros(const Op& op, const SignatureFacts& facts) const {
  if (facts.algebra == Algebra::kCopy) return !ins_.empty() && ins_[facts.x].is_zero;
  if (facts.algebra == Algebra::kCast) {
    return !ins_.empty() && absl::c_all_of(ins_, [](const BatchValue& in) { return in.is_zero; });
  }
  return FillsZeros(op, facts);
}

bool BatchInterpreter::VisitGathered(const Op& op, const SignatureFacts& facts) {
  const size_t n = static_cast<size_t>(options_.setting.nranks.value_or(0));
  if (ins_.empty() || !ins_[0].gathered_by.valid()) return false;
  const BatchValue& first = ins_[0];
  const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
  if (facts.algebra == Algebra::kSplitEqual && ins_.size() == 1 && out.size() == n &&
      op.IntAttr("axis").value_or(0) == 0 &&
      FactsOf(program_.op(first.gathered_by)).kind == SignatureFacts::Kind::kCollective) {
    BatchValue part = first;
    part.gathered_by = op.id();
    WriteAll(op, out, part);
    return true;
  }
  const OpId by = first.gathered_by;
  if (in.size() == 1 && !out.empty() && StacksRanks(op, static_cast<int64_t>(n), TypeOf(in[0])) &&
      FactsOf(program_.op(by)).kind == SignatureFacts::Kind::kCollective) {
    BatchValue stacked = first;
    stacked.gathered_by = op.id();
    WriteAll(op, out, stacked);
    return true;
  }
  if (FactsOf(program_.op(by)).algebra == Algebra::kReshape) {
    const absl::optional<Reduction> reduction =
        ReducesFirstDim(op, program_.op(by), TypeOf(program_.op(by).input_args()[0]));
    if (!reduction.has_value()) return false;
    BatchValue all(BatchRelation::Replicated(first.gathered_unscaled_sums)
                       .Times(*reduction == Reduction::kSum ? 1 : 0));
    all.is_summed = *reduction == Reduction::kSum;
    WriteAll(op, out, all);
    return true;
  }
  const bool are_parts = absl::c_all_of(
      ins_, [&](const BatchValue& value) { return value.gathered_by == first.gathered_by; });
  const absl::flat_hash_set<Symbol> distinct(in.begin(), in.end());
  if (facts.algebra != Algebra::kSum || !are_parts || distinct.size() != n || in.size() != n ||
      FactsOf(program_.op(first.gathered_by)).algebra != Algebra::kSplitEqual) {
    return false;
  }
  BatchValue sum(BatchRelation::Replicated(first.gathered_unscaled_sums).Times(1));
  sum.is_summed = true;
  WriteAll(op, out, sum);
  return true;
}

absl::optional<TensorType> BatchInterpreter::TypeOf(Symbol name) const {
  const VarId var = Resolve(name);
  return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
}

void BatchInterpreter::VisitFunction(const Op& op, const SignatureFacts& facts) {
  if (facts.param.count > 0) return VisitOptimizer(op, facts);
  if (facts.algebra == Algebra::kBackward) return VisitGradient(op, facts);
  ReadInputs(op);
  EditInputs(op);
  if (VisitGathered(op, facts)) return;
  const bool chooses = facts.algebra == Algebra::kMove && !op.Input("Y").empty();
  const bool joins = facts.algebra == Algebra::kSum || facts.algebra == Algebra::kAdd ||
                     facts.algebra == Algebra::kSubtract || facts.algebra == Algebra::kSparsify ||
                     facts.algebra == Algebra::kConcat || Stacks(op.type()) || chooses;
  if (joins) AdaptZeros(facts);
  const bool is_zero = MakesZeros(op, facts);
  const int divisions = DividesByRanks(op) ? 1 : 0;
  if (divisions > 0 && !op.HasAttr(kNumRanksAttr)) has_guessed_ = is_guessed_ = true;
  if (divisions > 0 && IsInteger(Resolve(op.output_args()[0]))) {
    // It is rounded.
    visits_of_ops_[op.id().value()] = kNotVisited;
    RecordLostRelation(op, {BatchRelation::Unrelated()});
    return WriteAll(op, op.output_args(), Made(op, BatchRelation::Unrelated(), ins_));
  }
  if (divisions > 0 && !ins_.empty()) RecordDivision(op, ins_[0]);
  if (AreSame(ins_) && facts.algebra != Algebra::kRandom && !facts.keeps_outputs) {
    for (size_t i = 0; i < op.output_args().size(); ++i) {
      if (facts.is_left[i]) continue;
      BatchValue value(kSame.Times(-divisions), OpId(), is_zero);
      value.is_summed = AnyIsSummed();
      Write(op, op.output_args()[i], value);
    }
    if (divisions == 0) visits_of_ops_[op.id().value()] = kAllSame;
    return;
  }
  const uint32_t visited = Apply(op, facts);
  if (divisions == 0) visits_of_ops_[op.id().value()] = visited;
  const BatchOutputs& made = visited_[visited].outputs;
  RecordLostRelation(op, made.relations);
  is_affected_ = is_affected_ || made.effect != BatchEffect::kNone;
  if (made.effect != BatchEffect::kNone && !has_effect_[op.id().value()]) {
    has_effect_[op.id().value()] = true;
    flow_.effects_.push_back({op.id(), made.effect});
  }
  const absl::Span<const Symbol> out = op.output_args();
  for (size_t i = 0; i < out.size(); ++i) {
    if (facts.is_left[i]) continue;
    BatchValue value = Made(op, made.relations[i].Times(-divisions), ins_);
    value.is_zero = is_zero;
    value.is_gradient = divisions == 0 && IsGradientLikeInputs(op, facts, value);
    value.is_summed = value.relation.IsReplicated() && AnyIsSummed();
    const VarId var = Resolve(out[i]);
    if (facts.keeps_outputs && var.valid() && IsHeld(var)) Merge(Read(var), &value, op.id());
    Write(op, out[i], value);
  }
}

void BatchInterpreter::RecordLostRelation(const Op& op, absl::Span<const BatchRelation> made) {
  const auto is_lost = [](const BatchValue& in) { return IsLost(in.relation); };
  if (absl::c_none_of(made, IsLost) || absl::c_any_of(ins_, is_lost)) return;
  if (has_lost_[op.id().value()]) return;
  has_lost_[op.id().value()] = true;
  LostRelation lost{op.id(), {}};
  for (const BatchValue& in : ins_) lost.inputs.push_back(in.relation);
  flow_.lost_relations_.push_back(std::move(lost));
}

bool BatchInterpreter::IsGradientLikeInputs(const Op& op, const SignatureFacts& facts,
                                            const BatchValue& value) const {
  const bool is_linear = facts.algebra == Algebra::kSum || facts.algebra == Algebra::kCopy ||
                         facts.algebra == Algebra::kScale;
  if (!is_linear || !IsBackward(op) || ins_.empty()) return false;
  const auto is_alike = [&](const BatchValue& in) {
    return in.relation == value.relation && in.is_gradient;
  };
  if (facts.algebra == Algebra::kCopy) return is_alike(ins_[facts.x]);
  return absl::c_all_of(ins_, is_alike);
}

bool BatchInterpreter::DividesByRanks(const Op& op) {
  if (op.output_args().size() != 1) return false;
  if (FillsNthPart(op, options_.setting.nranks.value_or(1))) {
    return !own_scalings_.contains(op.id());
  }
  const absl::optional<ConstantFactors::Factor> factor = constant_factors_.Of(op);
  if (!factor.has_value() || !IsNthPart(factor->value, options_.setting.nranks.value_or(1))) {
    return false;
  }
  // The rule of the op counts the power of a number of ranks that ranks have added up.
  if (factor->constant >= 0 && ins_[factor->constant].relation.power != 0) return false;
  if (op.HasAttr(kNumRanksAttr)) return true;
  if (own_scalings_.contains(op.id())) return false;
  const BatchValue& value = ins_[factor->operand];
  if (IsSumOverRanks(value)) return true;
  // The original shows that it is new.
  if (options_.original != nullptr && op.block() == 0 && IsBackward(op) && value.is_gradient) {
    return true;
  }
  if (loss_gradients_.IsScaledBy(op)) return true;
  const Symbol multiplied = op.input_args()[factor->operand];
  const OpId writer = WriterOf(Resolve(multiplied));
  return writer.valid() && IsLossGrad(program_.op(writer)) && IsBackward(op) &&
         multiplied == op.output_args()[0];
}

bool BatchInterpreter::RescalesByRanks(const Op& op, const SignatureFacts& facts,
                                       const BatchValue& gradient) const {
  const bool divides =
      IsNthPart(GradientFactorOf(op, facts.schema), options_.setting.nranks.value_or(1));
  return divides && !own_scalings_.contains(op.id()) &&
         (IsSumOverRanks(gradient) || (options_.original != nullptr && op.block() == 0));
}

bool BatchInterpreter::IsSumOverRanks(const BatchValue& value) {
  const BatchRelation relation = value.relation;
  return (relation.IsReplicated() || relation.IsSharded()) && relation.power > 0 &&
         value.is_summed && !value.is_gradient;
}

void BatchInterpreter::FindOwnScalings(const Program& original) {
  // Whether the op may be taken for a division.
  const auto scales = [n = options_.setting.nranks.value_or(1)](const Op& op,
                                                                ConstantFactors* constants) {
    const absl::optional<double> rescales = op.FloatAttr(kRescaleGradAttr);
    if (rescales.has_value()) return !op.output_args().empty() && IsNthPart(*rescales, n);
    if (op.output_args().size() != 1 || op.HasAttr(kNumRanksAttr)) return false;
    if (FillsNthPart(op, n)) return true;
    const absl::optional<ConstantFactors::Factor> factor = constants->Of(op);
    return factor.has_value() && IsNthPart(factor->value, n);
  };
  const SignatureTable signatures(original);
  ConstantFactors of_original(original, signatures, 1);
  // A scale of the rewrite is no elementwise division, nor an optimizer, of the original.
  const auto key_of = [](const Op& op) {
    return absl::StrCat(op.HasAttr("scale")            ? "scale "
                        : op.HasAttr(kRescaleGradAttr) ? "update "
                                                       : "constant ",
                        op.program().name(op.output_args()[0]));
  };
  absl::flat_hash_map<std::string, int> in_original;  // by kind and variable
  for (OpId id : original.block(0).ops()) {
    const Op op = original.op(id);
    if (scales(op, &of_original)) ++in_original[key_of(op)];
  }
  if (in_original.empty()) return;
  // From the end: a rewrite adds its division right after the gradient of the loss.
  const absl::Span<const OpId> ops = program_.block(0).ops();
  for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
    const Op op = program_.op(*id);
    if (!scales(op, &constant_factors_)) continue;
    const auto found = in_original.find(key_of(op));
    if (found != in_original.end() && found->second-- > 0) own_scalings_.insert(*id);
  }
}

void BatchInterpreter::ReadInputs(const Op& op) {
  ins_.clear();
  for (Symbol name : op.input_args()) ins_.push_back(Read(name));
}

void BatchInterpreter::EditInputs(const Op& op) {
  if (options_.edits.inputs.empty()) return;
  const auto edits = options_.edits.inputs.find(op.id());
  if (edits == options_.edits.inputs.end()) return;
  for (const auto& [i, edit] : edits->second) {
    ins_[i] = BatchValue(AfterEdit(edit, ins_[i].relation));
  }
}

bool BatchInterpreter::IsInteger(VarId var) const {
  if (!var.valid()) return false;
  const absl::optional<TensorType>& type = types_.type(type_ids_[var.value()]);
  return type.has_value() && !IsFloating(type->dtype);
}

bool BatchInterpreter::AnyIsSummed() const {
  return absl::c_any_of(ins_, [](const BatchValue& in) { return in.is_summed; });
}

bool BatchInterpreter::AreSame(absl::Span<const BatchValue> values) {
  return std::all_of(values.begin(), values.end(),
                     [](const BatchValue& value) { return value.relation.IsSame(); });
}

uint32_t BatchInterpreter::Apply(const Op& op, const SignatureFacts& facts) {
  numbers_.clear();
  relations_.clear();
  for (const BatchValue& in : ins_) relations_.push_back(in.relation);
  AddRelationsToKey();
  const bool has_no_negative_sizes = HasNoNegativeSizes(op);
  numbers_.push_back(has_no_negative_sizes ? 1 : 0);
  for (Symbol name : op.args()) {
    const VarId var = Resolve(name);
    numbers_.push_back(var.valid() ? type_ids_[var.value()] : kUnknownType);
  }
  const absl::string_view key = keys_.Of(op, numbers_);
  const auto found = visited_of_.find(key);
  if (found != visited_of_.end()) return found->second;
  const TypeLookup types = [&](Symbol name) -> absl::optional<TensorType> {
    const VarId var = Resolve(name);
    if (!var.valid()) return absl::nullopt;
    return types_.type(type_ids_[var.value()]);
  };
  const uint32_t visited = static_cast<uint32_t>(visited_.size());
  visited_of_.emplace(key, visited);
  visited_.push_back({relations_, facts.assumption.IsFunction()
                                      ? ApplyAssumedRule(op, facts.assumption, types, relations_)
                                      : ApplyBatchRule(op, facts.schema, types, relations_,
                                                       has_no_negative_sizes)});
  return visited;
}

void BatchInterpreter::AddRelationsToKey() {
  for (const BatchValue& in : ins_) {
    numbers_.push_back(static_cast<uint32_t>(in.relation.kind) << 16 |
                       static_cast<uint32_t>(static_cast<uint8_t>(in.relation.axis)) << 8 |
                       static_cast<uint8_t>(in.relation.power));
  }
}

void BatchInterpreter::VisitPart(const Op& op, const Storage::Buffer& buffer, VarId part,
                                 Symbol source) {
  Write(op, part, source.valid() ? Read(source) : BatchValue());
}

void BatchInterpreter::VisitCollective(const Op& op, const CollectiveOp& collective) {
  const absl::Span<const Symbol> in = collective.Inputs(op), out = collective.Outputs(op);
  for (size_t i = 0; i < std::min(in.size(), out.size()); ++i) {
    const VarId from = Resolve(in[i]);
    const absl::Span<const VarId> parts = PartsOf(from);
    if (!parts.empty() && in[i] == out[i]) {
      for (VarId part : parts) Exchange(op, collective, part, part);
    } else if (from.valid()) {
      const BatchValue value = Read(from);
      const BatchValue result = AfterCollectiveOf(op, collective, value, Resolve(out[i]));
      RecordForwardReduction(op, value.relation, result.relation);
      Write(op, out[i], result);
    }
  }
}

void BatchInterpreter::Exchange(const Op& op, const CollectiveOp& collective, VarId in, VarId out) {
  Write(op, out, AfterCollectiveOf(op, collective, at(in), out));
}

BatchValue BatchInterpreter::AfterCollectiveOf(const Op& op, const CollectiveOp& collective,
                                               const BatchValue& in, VarId var) const {
  // What some of the ranks exchange is nothing that one device has, but for gradients of parameters
  // that only these ranks share: layers 3 and 6 verify them.
  CollectiveOp done = collective;
  if (reduces_for_all_.contains(op.id())) done.kind = CollectiveKind::kAllReduce;
  const bool is_of_some = op.HasAttr(kGroupRanksAttr) && !IsBackward(op);
  // Ranks that take the mean of their parts have them add up to the same.
  const bool keeps_mean = done.kind == CollectiveKind::kAllReduce &&
                          done.reduction == Reduction::kAvg && in.relation.IsPartial();
  const BatchRelation relation = !is_of_some  ? AfterCollective(done, in.relation, IsInteger(var))
                                 : keeps_mean ? in.relation
                                              : BatchRelation::Unrelated();
  BatchValue out = Made(op, relation, {in});
  if (in.is_zero && in.relation.IsReplicated() && out.relation.IsReplicated()) {
    out.relation = in.relation;
    out.is_zero = true;
    return out;
  }
  const bool is_scattered = collective.kind == CollectiveKind::kReduceScatter;
  out.is_summed = in.is_summed || ((out.relation.IsReplicated() || is_scattered) &&
                                   out.relation.power > in.relation.power);
  const bool is_mean_or_same = in.relation.IsPartial() || in.relation.IsReplicated();
  if (collective.kind == CollectiveKind::kAllGather && is_mean_or_same) {
    out.gathered_by = op.id();
    out.gathered_unscaled_sums = in.relation.power;
  }
  return out;
}

void BatchInterpreter::RecordDivision(const Op& op, const BatchValue& in) {
  if (block() != 0 || IsBackward(op) || IsOptimize(op) || !op.HasAttr(kNumRanksAttr)) return;
  // A mean over the ranks in two ops, of numbers of samples: RecordForwardReduction takes it for a
  // copy in one.
  if (in.relation == kSame && in.is_summed) AddForwardReduction(op, 0);
}

void BatchInterpreter::RecordForwardReduction(const Op& op, BatchRelation in, BatchRelation out) {
  // Ranks that average parameters compute with weights of their own.
  if (block() != 0 || !averaged_.empty()) return;
  if (IsBackward(op)) return RecordGradientSum(op, in, out);
  // Numbers of samples add up.
  const bool is_number = in.IsReplicated() && in.power == -1 && out.power == 0;
  if (!out.IsReplicated() || (in.IsReplicated() && !is_number)) return;
  AddForwardReduction(op, in.power == 0 ? out.power : 0);
}

void BatchInterpreter::AddForwardReduction(const Op& op, int power) {
  flow_.forward_reductions_.push_back({op.id(), power});
  const CollectiveOp* const collective = FindCollectiveOp(op.type());
  const bool is_sum = collective != nullptr && collective->kind == CollectiveKind::kAllReduce &&
                      collective->reduction == Reduction::kSum;
  for (Symbol out : op.output_args()) num_sums_[out] += is_sum ? 1 : 0;
}

void BatchInterpreter::RecordGradientSum(const Op& op, BatchRelation in, BatchRelation out) {
  const bool adds =
      (in.IsReplicated() || in.IsPartial()) && out == BatchRelation::Replicated(in.power).Times(1);
  if (!adds || op.input_args().size() != 1) return;
  const Symbol of = gradient_names_.DifferentiatedName(op.input_args()[0]);
  const auto num_sums = num_sums_.find(of);
  if (num_sums == num_sums_.end()) return;
  int& num_of_gradient = num_gradient_sums_[op.output_args()[0]];
  if (num_sums->second <= num_of_gradient) return;
  ++num_of_gradient;
  AddForwardReduction(op, 0);
}

BatchFlow BatchFlow::Of(const ProgramFacts& program, const BatchFlowOptions& options) {
  return BatchInterpreter(program, options).Run();
}

}  // namespace weft
