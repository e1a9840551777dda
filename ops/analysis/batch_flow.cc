#include "ops/analysis/batch_flow.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/losses.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_key.h"
#include "ops/schema/second_gradients.h"
#include "ops/schema/type_table.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// After so many walks, which chains of states may exceed, all states that the step computes count
// as unrelated.
constexpr int kMaxWalks = 8;
// Relations descend at most two times from iteration to iteration of a loop.
constexpr int kMaxIterations = 4;
// The number of ways into a block may be exponential in the size of the program.
constexpr int kMaxVisitsOfBlock = 64;
constexpr BatchRelation kSame = BatchRelation::Replicated();

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

class BatchInterpreter {
 public:
  BatchInterpreter(const Program& program, const BatchFlowOptions& options)
      : program_(program),
        options_(options),
        keys_(program),
        recipes_(program.num_signatures()),
        gradient_inputs_(program.num_signatures()),
        type_ids_(DeclaredTypes(program, &types_)) {}

  BatchFlow Run() {
    SetStart();
    FindAveragedParameters();
    for (int walk = 0; walk <= kMaxWalks; ++walk) {
      values_ = start_;
      is_written_.assign(values_.size(), false);
      writers_.assign(values_.size(), OpId());
      groups_.clear();
      visits_.assign(program_.num_blocks(), 0);
      has_effect_.assign(program_.op_id_limit(), false);
      flow_.effects_.clear();
      flow_.conditions_.clear();
      flow_.updates_.clear();
      flow_.lost_relations_.clear();
      flow_.lifts_.clear();
      flow_.own_updates_.clear();
      if (options_.extent == BatchFlowOptions::Extent::kToLosses) {
        WalkToLosses();
        break;
      }
      Walk(0);
      if (options_.extent == BatchFlowOptions::Extent::kOneStep || !CarryOver()) break;
      if (walk + 1 == kMaxWalks) Widen();
    }
    flow_.values_ = std::move(values_);
    flow_.is_written_ = std::move(is_written_);
    return std::move(flow_);
  }

 private:
  // Before a branch or an iteration: the value of a variable that it writes.
  struct LogEntry {
    VarId var;
    BatchValue value;
    bool is_written;
  };

  // --- States ------------------------------------------------------------------------------------

  void SetStart() {
    start_.resize(program_.var_id_limit());
    const Block& root = program_.block(0);
    for (VarId id : root.vars()) {
      const Var var = program_.var(id);
      if (var.need_check_feed()) start_[id.value()] = BatchValue(Fed(var.name()));
    }
    for (const std::string& name : options_.zeros) {
      const VarId var = root.FindVar(name);
      if (var.valid()) start_[var.value()].is_zero = true;
    }
  }

  // Parameters of optimizers, and their master weights, that an all-reduce reads.
  void FindAveragedParameters() {
    if (options_.extent == BatchFlowOptions::Extent::kToLosses) return;
    absl::flat_hash_set<VarId> params, reduced;
    absl::flat_hash_map<VarId, std::vector<VarId>> members;  // by buffer
    const auto resolve = [&](const Op& op, absl::Span<const Symbol> names) {
      std::vector<VarId> vars;
      for (Symbol name : names) {
        const VarId var = program_.block(op.block()).Resolve(name);
        if (var.valid()) vars.push_back(var);
      }
      return vars;
    };
    for (int block = 0; block < program_.num_blocks(); ++block) {
      for (OpId id : program_.block(block).ops()) {
        const Op op = program_.op(id);
        const RankRecipe& recipe = RecipeOf(op);
        if (recipe.kind == RankRecipe::Kind::kFuse) {
          for (VarId buffer : resolve(op, op.Output("FusedOutput"))) {
            members[buffer] = resolve(op, op.Input("Input"));
          }
        } else if (recipe.kind == RankRecipe::Kind::kCollective &&
                   recipe.collective->kind == CollectiveKind::kAllReduce) {
          for (VarId var : resolve(op, op.Input("X"))) reduced.insert(var);
        } else if (recipe.param.count > 0) {
          for (const char* slot : {"Param", "MasterParam"}) {
            for (VarId var : resolve(op, op.Input(slot))) params.insert(var);
          }
        }
      }
    }
    for (const auto& [buffer, vars] : members) {
      if (reduced.contains(buffer)) reduced.insert(vars.begin(), vars.end());
    }
    for (VarId var : params) {
      if (reduced.contains(var)) averaged_.insert(var);
    }
  }

  BatchRelation Fed(absl::string_view name) const {
    const auto layout = options_.feeds.find(std::string(name));
    const bool is_split = layout != options_.feeds.end() && layout->second.axis.has_value();
    return is_split ? BatchRelation::Sharded(*layout->second.axis) : BatchRelation::Replicated();
  }

  // Has the next walk start with all states unrelated that other ops than optimizers write.
  void Widen() {
    for (VarId id : program_.block(0).vars()) {
      const uint32_t i = id.value();
      const OpId writer = writers_[i];
      if (!is_written_[i] || !program_.var(id).persistable() || averaged_.contains(id)) continue;
      if (!writer.valid() || RecipeOf(program_.op(writer)).param.count > 0) continue;
      const BatchValue unrelated(BatchRelation::Unrelated(), writer);
      if (start_[i].relation.IsSame()) flow_.states_.push_back({id, writer, unrelated});
      if (!start_[i].relation.IsUnrelated()) start_[i] = unrelated;
      start_[i].is_affected = true;
    }
  }

  // Has the next walk start with the states that this one leaves. Returns whether that changes
  // anything.
  bool CarryOver() {
    bool has_changed = false;
    for (VarId id : program_.block(0).vars()) {
      const uint32_t i = id.value();
      if (!is_written_[i] || !program_.var(id).persistable()) continue;
      if (averaged_.contains(id)) {
        // Between averages, the next step begins with other values: own_updates.
        if (!values_[i].relation.IsSame() && is_apart_.insert(id).second) {
          flow_.states_.push_back({id, writers_[i], values_[i]});
          has_changed = true;
        }
        continue;
      }
      BatchValue next = start_[i];
      Merge(values_[i], &next, writers_[i]);
      if (next.relation == start_[i].relation && next.is_affected == start_[i].is_affected) {
        start_[i].is_zero = next.is_zero;  // of a state that is the same otherwise
        continue;
      }
      if (start_[i].relation.IsSame() && !next.relation.IsSame()) {
        flow_.states_.push_back({id, writers_[i], values_[i]});
      }
      start_[i] = next;
      has_changed = true;
    }
    return has_changed;
  }

  // --- Variables ---------------------------------------------------------------------------------

  VarId Resolve(Symbol name) const { return program_.block(block_).Resolve(name); }

  BatchValue Read(Symbol name) const {
    const VarId var = Resolve(name);
    return var.valid() ? Read(var) : BatchValue();
  }
  BatchValue Read(VarId var) const {
    if (groups_.empty()) return values_[var.value()];
    const auto group = groups_.find(var);
    if (group == groups_.end()) return values_[var.value()];
    BatchValue joined = values_[group->second[0].value()];
    for (VarId member : group->second) Merge(values_[member.value()], &joined, OpId());
    return joined;
  }

  void Write(const Op& op, Symbol name, const BatchValue& value) {
    const VarId var = Resolve(name);
    if (!var.valid()) return;
    if (groups_.empty()) return Write(op, var, value);
    const auto group = groups_.find(var);
    if (group == groups_.end()) return Write(op, var, value);
    for (VarId member : group->second) Write(op, member, value);
  }
  void Write(const Op& op, VarId var, const BatchValue& value) {
    const uint32_t i = var.value();
    if (!logs_.empty()) logs_.back().push_back({var, values_[i], is_written_[i]});
    values_[i] = value;
    if (options_.follow_effects) {
      values_[i].is_affected |= is_affected_ || value.relation.IsUnrelated();
    }
    is_written_[i] = true;
    writers_[i] = op.id();
    if (!options_.edits.reductions.empty()) ReduceInPlace(op, var);
  }
  void ReduceInPlace(const Op& op, VarId var) {
    const auto reduction = options_.edits.reductions.find(var);
    if (reduction == options_.edits.reductions.end() || IsBackward(op)) return;
    BatchValue& value = values_[var.value()];
    value.relation =
        AfterCollective({"", CollectiveKind::kAllReduce, reduction->second, ""}, value.relation);
  }
  void WriteAll(const Op& op, absl::Span<const Symbol> names, const BatchValue& value) {
    for (Symbol name : names) Write(op, name, value);
  }

  // `into` becomes a value that is one or the other.
  static void Merge(const BatchValue& from, BatchValue* into, OpId cause) {
    if (from.gathered_by != into->gathered_by) into->gathered_by = OpId();
    into->is_affected = into->is_affected || from.is_affected;
    if (from.is_zero || into->is_zero) {
      const bool is_affected = into->is_affected;
      if (into->is_zero) *into = from;
      into->is_affected = is_affected;
      return;
    }
    const BatchRelation joined = Join(from.relation, into->relation);
    if (from.loss_power != into->loss_power) into->loss_power = BatchValue::kNoLoss;
    if (joined.IsUnrelated() && !into->relation.IsUnrelated()) {
      into->cause = from.relation.IsUnrelated() ? from.cause : cause;
    }
    into->relation = joined;
    into->made = Join(from.made, into->made);
    into->is_summed = into->is_summed || from.is_summed;
  }

  // The relation as an op that made it, from inputs.
  static BatchValue Made(const Op& op, BatchRelation relation, absl::Span<const BatchValue> ins) {
    BatchValue value(relation);
    if (!relation.IsUnrelated()) return value;
    value.cause = op.id();
    for (const BatchValue& in : ins) {
      if (in.relation.IsUnrelated()) {
        value.cause = in.cause;
        break;
      }
    }
    return value;
  }

  // --- Ops ---------------------------------------------------------------------------------------

  void Walk(int block) {
    const int around = std::exchange(block_, block);
    for (OpId id : program_.block(block).ops()) Visit(program_.op(id));
    block_ = around;
  }

  void WalkToLosses() {
    const absl::Span<const OpId> ops = program_.block(0).ops();
    const auto last = std::find_if(ops.rbegin(), ops.rend(), [&](OpId id) {
      const int role = program_.op(id).role();
      return (role & kRoleLoss) != 0 && (role & kRoleBackward) == 0;
    });
    for (OpId id : ops.first(ops.rend() - last)) Visit(program_.op(id));
  }

  const RankRecipe& RecipeOf(const Op& op) {
    RankRecipe& recipe = recipes_[op.signature_id()];
    if (!recipe.is_made) recipe = MakeRankRecipe(op);
    return recipe;
  }

  void Visit(const Op& op) {
    const RankRecipe& recipe = RecipeOf(op);
    is_affected_ = options_.follow_effects && absl::c_any_of(op.input_args(), [&](Symbol name) {
                     return Read(name).is_affected;
                   });
    switch (recipe.kind) {
      case RankRecipe::Kind::kIgnored:
        return;
      case RankRecipe::Kind::kFeed:
        for (Symbol name : op.output_args()) {
          Write(op, name, BatchValue(Fed(program_.name(name))));
        }
        return;
      case RankRecipe::Kind::kFuse:
        return VisitFuse(op);
      case RankRecipe::Kind::kCollective:
        return VisitCollective(op, *recipe.collective);
      case RankRecipe::Kind::kBranch:
        return VisitBranch(op);
      case RankRecipe::Kind::kOpaqueBlock:
        return VisitLoop(op, recipe);
      case RankRecipe::Kind::kBlockGrad:
        return VisitGradient(op, recipe);
      case RankRecipe::Kind::kFunction:
        break;
    }
    if (recipe.param.count > 0) return VisitOptimizer(op, recipe);
    if (recipe.algebra == Algebra::kBackward) return VisitGradient(op, recipe);
    VisitFunction(op, recipe);
  }

  // That ranks agree about what optimizers write is for others to prove.
  void VisitOptimizer(const Op& op, const RankRecipe& recipe) {
    if (UpdatesAveraged(op)) return VisitOwnUpdate(op, recipe);
    for (Symbol name : op.args(recipe.grad)) {
      const BatchValue gradient = Read(name);
      if (!gradient.relation.IsSame()) flow_.updates_.push_back({op.id(), name, gradient});
    }
    WriteAll(op, op.output_args(), BatchValue());
  }

  // The average of linear updates is that of one device, if ranks average in every step.
  void VisitOwnUpdate(const Op& op, const RankRecipe& recipe) {
    ReadInputs(op);
    const std::vector<BatchRelation>& made = Apply(op, recipe.schema).relations;
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

  bool UpdatesAveraged(const Op& op) const {
    if (averaged_.empty()) return false;
    for (const char* slot : {"Param", "MasterParam"}) {
      for (Symbol name : op.Input(slot)) {
        if (averaged_.contains(Resolve(name))) return true;
      }
    }
    return false;
  }

  // Zeros have the power of what they are added to.
  void AdaptZeros() {
    const auto other =
        std::find_if(ins_.begin(), ins_.end(), [](const BatchValue& in) { return !in.is_zero; });
    if (other == ins_.end()) return;
    for (BatchValue& in : ins_) {
      if (in.is_zero) in.relation = in.relation.WithoutPower().Times(other->relation.power);
    }
  }

  // Whether the op fills its output with zeros.
  static bool FillsZeros(const Op& op, const RankRecipe& recipe) {
    if (recipe.algebra == Algebra::kZeros) return true;
    const bool fills = recipe.algebra == Algebra::kFill || recipe.algebra == Algebra::kConstant;
    if (!op.Input("ValueTensor").empty()) return false;  // it overrides the attribute
    return fills && op.FloatAttr("value") == 0.0 &&
           absl::c_linear_search(std::vector<std::string>{"", "0", "0.0"},
                                 op.StringAttr("str_value").value_or(""));
  }

  // The split of a gathered value, and the sum of its parts. Returns whether the op is one of them.
  bool VisitGathered(const Op& op, const RankRecipe& recipe) {
    const size_t n = static_cast<size_t>(options_.nranks.value_or(0));
    if (ins_.empty() || !ins_[0].gathered_by.valid()) return false;
    const BatchValue& first = ins_[0];
    const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
    if (recipe.algebra == Algebra::kSplitEqual && ins_.size() == 1 && out.size() == n &&
        op.IntAttr("axis").value_or(0) == 0 &&
        RecipeOf(program_.op(first.gathered_by)).kind == RankRecipe::Kind::kCollective) {
      BatchValue part = first;
      part.gathered_by = op.id();
      WriteAll(op, out, part);
      return true;
    }
    const bool are_parts = absl::c_all_of(
        ins_, [&](const BatchValue& value) { return value.gathered_by == first.gathered_by; });
    const absl::flat_hash_set<Symbol> distinct(in.begin(), in.end());
    if (recipe.algebra != Algebra::kSum || !are_parts || distinct.size() != n || in.size() != n ||
        RecipeOf(program_.op(first.gathered_by)).algebra != Algebra::kSplitEqual) {
      return false;
    }
    WriteAll(op, out, BatchValue(BatchRelation::Replicated(first.gathered_power).Times(1)));
    return true;
  }

  void VisitFunction(const Op& op, const RankRecipe& recipe) {
    ReadInputs(op);
    EditInputs(op);
    if (VisitGathered(op, recipe)) return;
    const bool adds = recipe.algebra == Algebra::kSum || recipe.algebra == Algebra::kAdd ||
                      recipe.algebra == Algebra::kSubtract;
    if (adds) AdaptZeros();
    const bool is_zero = FillsZeros(op, recipe);
    const int divisions = DividesByRanks(op, recipe) ? 1 : 0;
    if (divisions > 0) RecordDivision(op, ins_[0]);
    if (AreSame(ins_) && recipe.algebra != Algebra::kRandom && !recipe.keeps_outputs) {
      for (size_t i = 0; i < op.output_args().size(); ++i) {
        if (recipe.is_left[i]) continue;
        BatchValue value(kSame.Times(-divisions), OpId(), is_zero);
        value.is_summed = AnyIsSummed();
        Write(op, op.output_args()[i], value);
      }
      return;
    }
    const BatchOutputs& made = Apply(op, recipe.schema);
    RecordLostRelation(op, made);
    is_affected_ = is_affected_ || made.effect != BatchEffect::kNone;
    if (made.effect != BatchEffect::kNone && !has_effect_[op.id().value()]) {
      has_effect_[op.id().value()] = true;
      flow_.effects_.push_back({op.id(), made.effect});
    }
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) {
      if (recipe.is_left[i]) continue;
      BatchValue value = Made(op, made.relations[i].Times(-divisions), ins_);
      value.is_zero = is_zero;
      if (divisions == 0 && IsGradientLikeInputs(op, recipe, value)) {
        value.loss_power = ins_[0].loss_power;
      }
      const VarId var = Resolve(out[i]);
      if (recipe.keeps_outputs && var.valid() && is_written_[var.value()]) {
        Merge(Read(var), &value, op.id());
      }
      Write(op, out[i], value);
    }
  }

  void RecordLostRelation(const Op& op, const BatchOutputs& made) {
    const auto is_unrelated = [](BatchRelation relation) { return relation.IsUnrelated(); };
    if (block_ != 0 || absl::c_none_of(made.relations, is_unrelated) ||
        absl::c_any_of(relations_, is_unrelated)) {
      return;
    }
    flow_.lost_relations_.push_back({op.id(), relations_});
  }

  // Whether the op adds, copies or scales gradients in backward, as the gradients of such ops do.
  bool IsGradientLikeInputs(const Op& op, const RankRecipe& recipe, const BatchValue& value) const {
    const bool is_linear = recipe.algebra == Algebra::kSum || recipe.algebra == Algebra::kCopy ||
                           recipe.algebra == Algebra::kScale;
    if (!is_linear || !IsBackward(op) || ins_.empty()) return false;
    return absl::c_all_of(ins_, [&](const BatchValue& in) {
      return in.relation == value.relation && in.loss_power == ins_[0].loss_power;
    });
  }

  // Whether the op's factor stands for 1/n: the op says so, or divides a sum over ranks, or the
  // gradient of a loss in place. What gradient ops compute is no sum over ranks, and any other
  // factor may be 1/n by chance.
  bool DividesByRanks(const Op& op, const RankRecipe& recipe) const {
    if (recipe.algebra != Algebra::kScale || ins_.size() != 1) return false;
    if (op.output_args().size() != 1) return false;
    const int n = options_.nranks.value_or(1);
    if (n <= 1 || std::abs(op.FloatAttr("scale").value_or(1) * n - 1) > 1e-6) return false;
    if (op.HasAttr(kNumRanksAttr)) return true;
    const BatchRelation in = ins_[0].relation;
    if (in.IsReplicated() && in.power > 0 && ins_[0].loss_power == BatchValue::kNoLoss) return true;
    const VarId var = Resolve(op.input_args()[0]);
    const OpId writer = var.valid() ? writers_[var.value()] : OpId();
    return writer.valid() && IsLossGrad(program_.op(writer)) && IsBackward(op) &&
           op.input_args()[0] == op.output_args()[0];
  }

  void ReadInputs(const Op& op) {
    ins_.clear();
    for (Symbol name : op.input_args()) ins_.push_back(Read(name));
  }
  void EditInputs(const Op& op) {
    if (options_.edits.inputs.empty()) return;
    const auto edits = options_.edits.inputs.find(op.id());
    if (edits == options_.edits.inputs.end()) return;
    for (const auto& [i, edit] : edits->second) {
      ins_[i] = BatchValue(AfterEdit(edit, ins_[i].relation));
    }
  }

  bool AnyIsSummed() const {
    return absl::c_any_of(ins_, [](const BatchValue& in) { return in.is_summed; });
  }
  static bool AreSame(absl::Span<const BatchValue> values) {
    return std::all_of(values.begin(), values.end(),
                       [](const BatchValue& value) { return value.relation.IsSame(); });
  }

  // Of ins_. Ops that are alike share one answer.
  const BatchOutputs& Apply(const Op& op, const OpSchema* schema) {
    numbers_.clear();
    relations_.clear();
    for (const BatchValue& in : ins_) {
      relations_.push_back(in.relation);
      numbers_.push_back(static_cast<uint32_t>(in.relation.kind) << 16 |
                         static_cast<uint32_t>(static_cast<uint8_t>(in.relation.axis)) << 8 |
                         static_cast<uint8_t>(in.relation.power));
    }
    for (Symbol name : op.args()) {
      const VarId var = Resolve(name);
      numbers_.push_back(var.valid() ? type_ids_[var.value()] : kUnknownType);
    }
    const absl::string_view key = keys_.Of(op, numbers_);
    const auto found = outputs_.find(key);
    if (found != outputs_.end()) return found->second;
    const TypeLookup types = [&](Symbol name) -> absl::optional<TensorType> {
      const VarId var = Resolve(name);
      if (!var.valid()) return absl::nullopt;
      return types_.type(type_ids_[var.value()]);
    };
    return outputs_.emplace(key, ApplyBatchRule(op, schema, types, relations_)).first->second;
  }

  void VisitFuse(const Op& op) {
    const absl::Span<const Symbol> in = op.Input("Input"), out = op.Output("Output");
    const bool copies = op.BoolAttr("copy_data").value_or(false);
    std::vector<VarId> members;
    for (size_t i = 0; i < out.size(); ++i) {
      const VarId var = Resolve(out[i]);
      if (!var.valid()) continue;
      members.push_back(var);
      Write(op, var, copies && i < in.size() ? Read(in[i]) : BatchValue());
    }
    const absl::Span<const Symbol> buffer = op.Output("FusedOutput");
    const VarId fused = buffer.empty() ? VarId() : Resolve(buffer[0]);
    if (fused.valid() && !members.empty()) groups_[fused] = std::move(members);
  }

  void VisitCollective(const Op& op, const CollectiveOp& collective) {
    const absl::Span<const Symbol> in = op.Input("X"), out = op.Output("Out");
    for (size_t i = 0; i < std::min(in.size(), out.size()); ++i) {
      const VarId from = Resolve(in[i]);
      const auto group = groups_.find(from);
      if (group != groups_.end() && in[i] == out[i]) {
        for (VarId member : group->second) Exchange(op, collective, member, member);
      } else if (from.valid()) {
        const BatchValue value = Read(from);
        const BatchValue result = AfterCollectiveOf(op, collective, value, in[i] == out[i]);
        RecordLift(op, value.relation, result.relation);
        Write(op, out[i], result);
      }
    }
  }

  void Exchange(const Op& op, const CollectiveOp& collective, VarId in, VarId out) {
    Write(op, out, AfterCollectiveOf(op, collective, values_[in.value()], in == out));
  }

  static BatchValue AfterCollectiveOf(const Op& op, const CollectiveOp& collective,
                                      const BatchValue& in, bool is_in_place) {
    BatchValue out = Made(op, AfterCollective(collective, in.relation), {in});
    if (is_in_place) out.made = in.made;
    out.is_summed =
        in.is_summed || (in.relation == BatchRelation::PartialSum() && out.relation == kSame);
    const bool is_mean_or_same = in.relation.IsPartial() || in.relation.IsReplicated();
    if (collective.kind == CollectiveKind::kAllGather && is_mean_or_same) {
      out.gathered_by = op.id();
      out.gathered_power = in.relation.power;
    }
    return out;
  }

  bool HasGradient(absl::Span<const Symbol> names) const {
    return absl::c_any_of(names, [&](Symbol name) {
      return program_.FindSymbol(absl::StrCat(program_.name(name), kGradSuffix)).valid();
    });
  }

  void RecordDivision(const Op& op, const BatchValue& in) {
    const bool is_in_place = op.input_args()[0] == op.output_args()[0];
    if (block_ != 0 || IsBackward(op) || IsOptimize(op) || !op.HasAttr(kNumRanksAttr)) return;
    if (in.relation == kSame && in.is_summed && !is_in_place) {
      flow_.lifts_.push_back({op.id(), 0, false});
    }
  }

  void RecordLift(const Op& op, BatchRelation in, BatchRelation out) {
    // Ranks that average parameters compute with weights of their own.
    if (block_ != 0 || !averaged_.empty()) return;
    if (IsBackward(op) || !out.IsReplicated() || in.IsReplicated()) return;
    const bool is_trained = HasGradient(op.output_args());
    flow_.lifts_.push_back({op.id(), in.power == 0 ? out.power : 0, is_trained});
  }

  // --- Blocks ------------------------------------------------------------------------------------

  // Whether the op's block runs on every rank as on one device.
  bool ConditionHolds(const Op& op, absl::string_view slot) {
    for (Symbol name : op.Input(slot)) {
      if (Read(name).relation.IsSame()) continue;
      if (!has_effect_[op.id().value()]) flow_.conditions_.push_back({op.id(), Read(name)});
      has_effect_[op.id().value()] = true;
      return false;
    }
    return true;
  }

  // Walks over the op's blocks once. Outer variables have the values before or those after it, and
  // none that is known if it does not run as on one device, or too often. Returns whether any
  // relation has changed.
  bool WalkBlocks(const Op& op, bool runs_alike) {
    bool has_changed = false;
    // What decides about the block, or goes into it, affects only what depends on it.
    const bool affects =
        absl::c_any_of(op.Input("Cond"), [&](Symbol name) { return Read(name).is_affected; });
    for (int block : op.SubBlocks()) {
      const bool is_followed = visits_[block] < kMaxVisitsOfBlock && !is_entered_.contains(block);
      ++visits_[block];
      logs_.emplace_back();
      if (is_followed) {
        is_entered_.insert(block);
        Walk(block);
        is_entered_.erase(block);
      } else {
        CollectWrites(op, block);
      }
      const std::vector<LogEntry> log = std::move(logs_.back());
      logs_.pop_back();
      is_affected_ = affects;
      has_changed |= Leave(op, block, log, runs_alike && is_followed);
    }
    return has_changed;
  }

  bool Leave(const Op& op, int block, const std::vector<LogEntry>& log, bool is_known) {
    bool has_changed = false;
    absl::flat_hash_set<VarId> seen;
    for (const LogEntry& entry : log) {
      // The first entry has the value before the block.
      const Var var = program_.var(entry.var);
      if (var.block() == block || !seen.insert(entry.var).second) continue;
      BatchValue value = values_[entry.var.value()];
      const bool had_value = entry.is_written || var.persistable() || var.need_check_feed();
      if (!is_known) {
        value = BatchValue(BatchRelation::Unrelated(), op.id());
      } else if (had_value) {
        Merge(entry.value, &value, op.id());
      }
      has_changed |= value.relation != entry.value.relation;
      values_[entry.var.value()] = entry.value;
      is_written_[entry.var.value()] = entry.is_written;
      Write(op, entry.var, value);
    }
    return has_changed;
  }

  // Of a block that is not walked over: its ops leave everything as it is, for Leave.
  void CollectWrites(const Op& op, int block) {
    for (OpId id : program_.block(block).ops()) {
      for (Symbol name : program_.op(id).output_args()) {
        const VarId var = program_.block(block).Resolve(name);
        if (var.valid()) Write(op, var, values_[var.value()]);
      }
    }
  }

  void VisitBranch(const Op& op) { WalkBlocks(op, ConditionHolds(op, "Cond")); }

  void VisitLoop(const Op& op, const RankRecipe& recipe) {
    const bool is_loop = recipe.schema != nullptr && recipe.schema->Has(Trait::kLoop);
    for (int i = 0; i < kMaxIterations; ++i) {
      const bool runs_alike = is_loop && ConditionHolds(op, "Condition");
      if (!WalkBlocks(op, runs_alike && i + 1 < kMaxIterations)) break;
    }
    // What the loop passes on from iteration to iteration may decide about the next.
    if (is_loop && !ConditionHolds(op, "Condition")) WalkBlocks(op, false);
  }

  // --- Gradients ---------------------------------------------------------------------------------

  // Each gradient has the relation that follows from its variable, if those of the outputs agree.
  void VisitGradient(const Op& op, const RankRecipe& recipe) {
    ReadInputs(op);
    const absl::Span<const Symbol> out = op.output_args();
    if (AreSame(ins_)) return WriteAll(op, out, BatchValue());
    const bool are_equal =
        absl::c_all_of(ins_, [](const BatchValue& in) { return in.relation.IsReplicated(); });
    BatchValue none(BatchRelation::Unrelated());
    const absl::optional<int> power = LossPowerOf(op, recipe, &none.cause);
    for (size_t i = 0; i < out.size(); ++i) {
      const int input = recipe.forward_input[i];
      const VarId forward = input >= 0 ? Resolve(op.input_args()[input]) : ForwardOf(out[i]);
      if (!power.has_value() || !forward.valid()) {
        Write(op, out[i], power.has_value() ? BatchValue(none.relation, op.id()) : none);
        continue;
      }
      const BatchValue value = Read(forward);
      BatchValue gradient = Made(op, GradientRelation(value.relation, *power), {value});
      // The mean of equal values.
      if (are_equal && gradient.relation.IsPartial()) {
        gradient.relation = BatchRelation::Replicated(gradient.relation.power);
      }
      if (!gradient.relation.IsUnrelated() && value.made == value.relation) {
        gradient.loss_power = static_cast<int8_t>(std::clamp(*power, -100, 100));
      }
      Write(op, out[i], gradient);
    }
  }

  // An input of slot S@GRAD, and the input of slot S; -1: the op does not read it.
  struct GradientInput {
    uint32_t gradient;
    int forward;
  };

  const std::vector<GradientInput>& GradientInputs(const Op& op) {
    absl::optional<std::vector<GradientInput>>& inputs = gradient_inputs_[op.signature_id()];
    if (inputs.has_value()) return *inputs;
    inputs.emplace();
    const std::vector<OpSignature::Slot>& slots = op.signature().inputs;
    for (const OpSignature::Slot& slot : slots) {
      absl::string_view of = program_.name(slot.name);
      if (!absl::ConsumeSuffix(&of, kGradSuffix)) continue;
      const auto forward = absl::c_find_if(
          slots, [&](const OpSignature::Slot& s) { return program_.name(s.name) == of; });
      for (uint32_t i = 0; i < slot.count; ++i) {
        const bool is_read = forward != slots.end() && i < forward->count;
        inputs->push_back({slot.first + i, is_read ? static_cast<int>(forward->first + i) : -1});
      }
    }
    return *inputs;
  }

  // The power of the losses whose gradients the op takes; none: unknown because of `cause`.
  absl::optional<int> LossPowerOf(const Op& op, const RankRecipe& recipe, OpId* cause) {
    absl::optional<int> power;
    *cause = op.id();
    // Gradients of gradients are not followed.
    if (FindSecondGradient(op.type()) != nullptr) return absl::nullopt;
    for (const GradientInput& input : GradientInputs(op)) {
      const Symbol name = op.input_args()[input.gradient];
      const VarId gradient = Resolve(name);
      if (!gradient.valid()) continue;
      const BatchValue of = Read(gradient);
      if (of.is_zero) continue;
      if (of.relation.IsUnrelated()) {
        *cause = of.cause;
        return absl::nullopt;
      }
      absl::optional<int> here;
      if (of.loss_power != BatchValue::kNoLoss) {
        here = of.loss_power;
      } else {
        const VarId forward =
            input.forward >= 0 ? Resolve(op.input_args()[input.forward]) : ForwardOf(name);
        if (!forward.valid()) return absl::nullopt;
        const BatchValue value = Read(forward);
        if (value.made.IsUnrelated()) {
          *cause = value.cause;
          return absl::nullopt;
        }
        here = LossPower(value.made, of.relation);
      }
      if (!here.has_value() || (power.has_value() && *power != *here)) return absl::nullopt;
      power = here;
    }
    return power;
  }

  // w for "w@GRAD" or "w@GRAD@RENAME@block0@1"; invalid if there is none.
  VarId ForwardOf(Symbol gradient) const {
    const absl::string_view name = program_.name(gradient);
    const size_t suffix = name.find(kGradSuffix);
    if (suffix == absl::string_view::npos) return VarId();
    const Symbol forward = program_.FindSymbol(name.substr(0, suffix));
    return forward.valid() ? Resolve(forward) : VarId();
  }

  const Program& program_;
  const BatchFlowOptions& options_;
  OpKeyBuilder keys_;
  absl::flat_hash_map<std::string, BatchOutputs> outputs_;                   // by key
  std::vector<RankRecipe> recipes_;                                          // by signature
  std::vector<absl::optional<std::vector<GradientInput>>> gradient_inputs_;  // by signature
  TypeTable types_;
  const std::vector<TypeId> type_ids_;  // by VarId
  BatchFlow flow_;

  std::vector<BatchValue> start_, values_;                 // by VarId
  std::vector<bool> is_written_;                           // by VarId
  std::vector<OpId> writers_;                              // by VarId
  std::vector<bool> has_effect_;                           // by OpId: in flow_
  absl::flat_hash_map<VarId, std::vector<VarId>> groups_;  // members by buffer
  absl::flat_hash_set<VarId> averaged_;                    // parameters
  absl::flat_hash_set<VarId> is_apart_;                    // of averaged_: in flow_.states_
  std::vector<std::vector<LogEntry>> logs_;
  absl::flat_hash_set<int> is_entered_;
  std::vector<int> visits_;  // by block
  int block_ = 0;

  // Of the current op.
  bool is_affected_ = false;  // its outputs
  std::vector<BatchValue> ins_;
  std::vector<BatchRelation> relations_;
  std::vector<uint32_t> numbers_;
};

BatchFlow BatchFlow::Of(const Program& program, const BatchFlowOptions& options) {
  return BatchInterpreter(program, options).Run();
}

absl::optional<bool> LossesAreSums(const Program& program, const BatchFlow& flow) {
  absl::optional<bool> are_sums;
  for (Symbol loss : FindLosses(program)) {
    const VarId var = program.block(0).Resolve(loss);
    if (!var.valid()) return absl::nullopt;
    const BatchRelation relation = flow.AtEnd(var).relation;
    const bool is_sum = relation == BatchRelation::PartialSum();
    if (!is_sum && relation != BatchRelation::Partial()) return absl::nullopt;
    if (are_sums.has_value() && *are_sums != is_sum) return absl::nullopt;
    are_sums = is_sum;
  }
  return are_sums;
}

}  // namespace weft
