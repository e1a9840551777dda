#include "ops/analysis/rank_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/analysis/op_operations.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Place = RankValue::Place;
using Term = ExpressionTable::Term;

// Stands for a number of ranks that is not known: what holds for it holds for any, as no product of
// its powers with factors of a program is 1 by chance.
constexpr double kAnyNumber = 7.38905609893065;
// What one step leaves to the next gets less and less equal; this is more than the steps down.
constexpr int kMaxWalks = 8;
// A value that is the sum of more has no memory of them.
constexpr size_t kMaxTerms = 64;
// Ops on buffers visit their members; beyond so many visits in a walk they are not followed.
constexpr int64_t kMaxMemberVisits = 1 << 22;

// A summand of a value that adds what is the same on all ranks to what is not.
struct PlacedTerm {
  ExprId expr;
  double factor;
  bool is_same;
  bool is_summed;
};

}  // namespace

std::string ToString(Place place) {
  switch (place) {
    case Place::kReplicated:
      return "the same on all ranks";
    case Place::kLocal:
      return "own to each rank";
    case Place::kShard:
      return "a part on each rank";
    case Place::kGathered:
      return "the values of all ranks, one after the other";
    case Place::kOfRanks:
      return "the value of some of the ranks only";
  }
  return "unknown";
}

class RankInterpreter {
 public:
  RankInterpreter(const Program& program, const RankValuesOptions& options)
      : program_(program),
        options_(options),
        table_(options.table),
        is_single_(options.is_one_device || options.nranks == 1),
        n_(options.nranks.has_value() ? *options.nranks : kAnyNumber),
        empty_(program.FindSymbol(kEmptyVarName)),
        recipes_(program.num_layouts()),
        fused_(program.var_id_limit(), -1) {
    if (table_ != nullptr) {
      operations_.emplace(program, table_);
      gathered_ = table_->Operation("gathered", "gathered");
      shard_ = table_->Operation("shard", "shard");
    }
    result_.is_written_.assign(program.var_id_limit(), false);
    SetStart();
  }

  RankValues Run() {
    for (int walk = 0; walk < kMaxWalks; ++walk) {
      if (options_.observer != nullptr) options_.observer->Restart();
      values_ = result_.start_;
      std::fill(fused_.begin(), fused_.end(), -1);
      groups_.clear();
      entered_.clear();
      runs_.clear();
      terms_.assign(1, {});
      is_held_.assign(program_.var_id_limit(), false);
      member_visits_ = 0;
      Walk(0);
      if (options_.is_startup || is_single_) break;
      if (!CarryOver(/*widen=*/walk >= kMaxWalks - 2)) break;
    }
    result_.end_ = std::move(values_);
    return std::move(result_);
  }

 private:
  using Group = std::vector<VarId>;
  // What a variable held before a write.
  struct LogEntry {
    VarId var;
    RankValue held;
    bool is_held;
  };

  // --- Where a step begins ---------------------------------------------------------------------

  void SetStart() {
    result_.start_.resize(program_.var_id_limit());
    for (size_t i = 0; i < program_.var_id_limit(); ++i) {
      const Var var = program_.var(VarId(static_cast<uint32_t>(i)));
      RankValue& value = result_.start_[i];
      if (table_ != nullptr && (var.persistable() || var.need_check_feed())) {
        value.expr = table_->Initial(var.name());
      }
      if (is_single_) continue;
      const int type = var.type();
      if (var.need_check_feed() || type == pb::VarType::FEED_MINIBATCH ||
          type == pb::VarType::READER || IsDistributed(var)) {
        value.place = Place::kLocal;
      } else if (options_.start != nullptr && var.persistable()) {
        const auto found = options_.start->find(var.name());
        if (found != options_.start->end() && !found->second.IsSame()) {
          value.place = found->second.place;
        }
      }
    }
  }

  bool IsDistributed(const Var& var) const {
    return !options_.distributed_params.empty() &&
           options_.distributed_params.count(std::string(var.name())) > 0;
  }

  // What the step leaves to the next; true where that is less equal than was assumed.
  bool CarryOver(bool widen) {
    bool changed = false;
    for (size_t i = 0; i < values_.size(); ++i) {
      const Var var = program_.var(VarId(static_cast<uint32_t>(i)));
      if (!result_.is_written_[i] || !var.persistable()) continue;
      RankValue& start = result_.start_[i];
      RankValue end = values_[i];
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

  // --- Walking -----------------------------------------------------------------------------------

  const RankRecipe& RecipeOf(const Op& op) {
    RankRecipe& recipe = recipes_[op.layout_id()];
    if (!recipe.is_made) recipe = MakeRankRecipe(op);
    return recipe;
  }

  // Invalid for an argument that stands for no variable.
  VarId Resolve(Symbol name) const {
    if (name == empty_) return VarId();
    return block_ == 0 ? program_.block(0).FindVar(name) : program_.block(block_).Resolve(name);
  }

  void Walk(int block) {
    const int around = block_;
    block_ = block;
    for (OpId id : program_.block(block).ops()) Visit(program_.op(id));
    block_ = around;
  }

  void Visit(const Op& op) {
    const RankRecipe& recipe = RecipeOf(op);
    switch (recipe.kind) {
      case RankRecipe::Kind::kIgnored:
        return;
      case RankRecipe::Kind::kFeed:
        return VisitFeed(op);
      case RankRecipe::Kind::kFuse:
        return VisitFuse(op);
      case RankRecipe::Kind::kBranch:
        return VisitBranch(op);
      case RankRecipe::Kind::kCollective:
        if (options_.is_one_device) break;
        return VisitCollective(op, *recipe.collective);
      case RankRecipe::Kind::kOpaqueBlock:
        if (options_.observer != nullptr) options_.observer->OnOpaqueBlock(op);
        return VisitOpaqueBlock(op);
      case RankRecipe::Kind::kFunction:
        break;
    }
    VisitFunction(op, recipe);
  }

  void Write(VarId var, const RankValue& value) {
    if (!var.valid()) return;
    RankValue& held = values_[var.value()];
    if (!logs_.empty()) logs_.back().push_back({var, held, is_held_[var.value()]});
    is_held_[var.value()] = true;
    result_.is_written_[var.value()] = true;
    held = value;
  }

  // What an argument holds; a variable that nobody has written is taken as it was declared.
  RankValue Read(Symbol name) {
    const VarId var = Resolve(name);
    if (!var.valid()) {
      RankValue nothing;
      if (table_ != nullptr) nothing.expr = table_->Initial(kEmptyVarName);
      return nothing;
    }
    RankValue value = values_[var.value()];
    if (table_ != nullptr && !value.expr.valid()) value.expr = table_->Initial(program_.name(name));
    return value;
  }

  void VisitFeed(const Op& op) {
    for (Symbol name : op.output_args()) {
      const VarId var = Resolve(name);
      if (!var.valid()) continue;
      RankValue value;
      value.place = is_single_ ? Place::kReplicated : Place::kLocal;
      if (table_ != nullptr) {
        const std::string column = absl::StrCat("feed ", NumberAttr(op, "col", 0));
        value.expr =
            table_->Call(table_->Operation(column, column), {table_->Initial(program_.name(name))});
      }
      Write(var, value);
    }
  }

  // --- Buffers of several variables --------------------------------------------------------------

  void VisitFuse(const Op& op) {
    const absl::Span<const Symbol> inputs = op.Input("Input");
    const absl::Span<const Symbol> outputs = op.Output("Output");
    const bool copies = NumberAttr(op, "copy_data", 0) != 0;
    const bool fills = NumberAttr(op, "set_constant", 0) != 0;
    Group group;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const VarId var = Resolve(outputs[i]);
      if (!var.valid()) continue;
      group.push_back(var);
      if (copies && i < inputs.size()) {
        Write(var, Read(inputs[i]));
      } else if (fills) {
        RankValue value;
        const double constant = NumberAttr(op, "constant", 0);
        value.is_zero = constant == 0;
        if (table_ != nullptr) {
          value.expr = constant == 0
                           ? table_->Zero()
                           : table_->Call(table_->Operation(absl::StrCat("constant ", constant),
                                                            absl::StrCat(constant)),
                                          {});
        }
        Write(var, value);
      }
    }
    const absl::Span<const Symbol> buffer = op.Output("FusedOutput");
    if (buffer.empty()) return;
    const VarId fused = Resolve(buffer[0]);
    if (!fused.valid()) return;
    fused_[fused.value()] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(group));
  }

  const Group* GroupOf(Symbol name) const {
    const VarId var = Resolve(name);
    if (!var.valid() || fused_[var.value()] < 0) return nullptr;
    return &groups_[fused_[var.value()]];
  }

  // --- Collectives -------------------------------------------------------------------------------

  void VisitCollective(const Op& op, const CollectiveOp& collective) {
    const absl::Span<const Symbol> in = op.Input("X");
    const absl::Span<const Symbol> out = op.Output("Out");
    for (size_t i = 0; i < std::min(in.size(), out.size()); ++i) {
      const Group* group = GroupOf(in[i]);
      const Group* into = GroupOf(out[i]);
      if (group == nullptr && into == nullptr) {
        Exchange(op, collective, in[i], Resolve(in[i]), Resolve(out[i]));
        continue;
      }
      if (group != nullptr && in[i] == out[i]) {
        const Group members = *group;
        for (VarId member : members) {
          Exchange(op, collective, program_.var(member).name_symbol(), member, member);
        }
        continue;
      }
      // From one buffer into another: not followed.
      RankValue whole;
      whole.place = Place::kLocal;
      whole = Opaque(whole, absl::StrCat("fused collective ", op.id().value()), {});
      const Group members = into == nullptr ? Group{Resolve(out[i])} : *into;
      for (VarId member : members) Write(member, whole);
    }
  }

  void Exchange(const Op& op, const CollectiveOp& collective, Symbol name, VarId in, VarId out) {
    if (!in.valid()) return;
    RankValue value = values_[in.value()];
    if (table_ != nullptr && !value.expr.valid()) value.expr = table_->Initial(program_.name(name));
    if (options_.observer != nullptr) options_.observer->OnCollective(op, name, value);
    Write(out, AfterCollective(op, collective, value));
  }

  RankValue AfterCollective(const Op& op, const CollectiveOp& collective, const RankValue& in) {
    RankValue out = in;
    if (out.reductions < 255) ++out.reductions;
    switch (collective.kind) {
      case CollectiveKind::kAllReduce:
        if (collective.reduction == Reduction::kSum) return Summed(op, in);
        if (collective.reduction == Reduction::kAvg) {
          out = Averaged(op, in);
          if (options_.sums_are_wanted && in.reductions == 0) {
            if (out.power > -100) --out.power;
            out.factor /= n_;
          }
          return out;
        }
        if (in.is_gradient) out.bent_by = op.id();
        out.place = Place::kReplicated;
        out.is_gradient = out.is_summed = false;
        return Opaque(out, absl::StrCat("all-reduce ", ReductionName(collective.reduction)), {in});
      case CollectiveKind::kReduce:
        out.place = Place::kLocal;
        out.is_gradient = out.is_summed = false;
        return Opaque(out, "reduce", {in});
      case CollectiveKind::kReduceScatter:
        if (in.place != Place::kLocal && in.place != Place::kReplicated) {
          out.place = Place::kLocal;
          out.is_gradient = out.is_summed = false;
          return Opaque(out, "reduce-scatter", {in});
        }
        out = Summed(op, in);
        out.place = Place::kShard;
        return out;
      case CollectiveKind::kAllGather:
        if (in.place == Place::kShard) {
          out.place = Place::kReplicated;
        } else if (in.place == Place::kLocal) {
          out.place = Place::kGathered;
        } else {
          return Opaque(out, "all-gather", {in});
        }
        return out;
      case CollectiveKind::kBroadcast:
        if (in.place == Place::kShard) return Opaque(out, "broadcast", {in});
        if (in.place != Place::kLocal) return in;
        out.place = Place::kOfRanks;
        out.rank = static_cast<int32_t>(NumberAttr(op, collective.root_attr, 0));
        return out;
    }
    return out;
  }

  RankValue Summed(const Op& op, const RankValue& in) {
    RankValue out = Averaged(op, in);
    if (options_.sums_are_wanted && in.reductions == 0) return out;
    if (out.power < 100) ++out.power;
    out.factor *= n_;
    return out;
  }

  RankValue Averaged(const Op& op, const RankValue& in) {
    RankValue out = in;
    if (out.reductions < 255) ++out.reductions;
    if (in.place != Place::kLocal) {
      if (in.place == Place::kShard) return Opaque(out, "all-reduce of parts", {in});
      return out;
    }
    out.place = Place::kReplicated;
    out.is_gradient = out.is_summed = false;
    out.terms = 0;
    out.own_factor = 0;
    out.has_met = true;
    // The ranks' rows are those of different samples.
    if (in.is_gradient && !in.is_summed && !out.bent_by.valid()) out.bent_by = op.id();
    if (table_ == nullptr || (in.is_gradient && in.is_summed)) return out;
    if (in.terms == 0) {
      out.expr = table_->MeanOverRanks(in.expr);
      return out;
    }
    std::vector<Term> terms;
    for (const PlacedTerm& term : terms_[in.terms]) {
      const bool is_mean = term.is_same || term.is_summed;
      terms.push_back({is_mean ? term.expr : table_->MeanOverRanks(term.expr), term.factor});
    }
    double common = 1;
    out.expr = table_->Sum(&terms, &common);
    out.factor *= common;
    out.is_zero = common == 0;
    return out;
  }

  // `out` with an expression of its own: that operation on the values.
  RankValue Opaque(RankValue out, absl::string_view operation,
                   const std::vector<RankValue>& inputs) {
    if (table_ == nullptr) return out;
    std::vector<ExprId> operands;
    for (const RankValue& input : inputs) operands.push_back(ScaledExpr(input));
    out.expr = table_->Call(table_->Operation(operation, operation), operands);
    out.factor = 1;
    out.own_factor = 0;
    out.terms = 0;
    return out;
  }

  // The expression of what all ranks hold, or each of them.
  ExprId PlacedExpr(const RankValue& value) {
    switch (value.place) {
      case Place::kReplicated:
      case Place::kLocal:
        return value.expr;
      case Place::kShard:
        return table_->Call(shard_, {value.expr});
      case Place::kGathered:
        return table_->Call(gathered_, {value.expr});
      case Place::kOfRanks:
        if (value.rank < 0) return value.expr;
        const std::string text = absl::StrCat("rank_", value.rank, "_of");
        return table_->Call(table_->Operation(text, text), {value.expr});
    }
    return value.expr;
  }
  ExprId ScaledExpr(const RankValue& value) {
    return table_->Scaled(PlacedExpr(value), value.factor);
  }

  // --- Blocks ------------------------------------------------------------------------------------

  void VisitBranch(const Op& op) {
    RankValue condition;
    for (Symbol name : op.Input("Cond")) {
      const RankValue value = Read(name);
      if (options_.observer != nullptr) options_.observer->OnBranch(op, name, value);
      const Place place = Join(condition.place, value.place);
      condition = value;
      condition.place = place;
    }
    for (int block : op.SubBlocks()) {
      if (std::find(entered_.begin(), entered_.end(), block) != entered_.end()) {
        if (options_.observer != nullptr) options_.observer->OnOpaqueBlock(op);
        continue;
      }
      entered_.push_back(block);
      logs_.emplace_back();
      Walk(block);
      const std::vector<LogEntry> log = std::move(logs_.back());
      logs_.pop_back();
      LeaveBranch(block, condition, log);
    }
  }

  // Variables hold what they held before, or what the block gave them.
  void LeaveBranch(int block, const RankValue& condition, const std::vector<LogEntry>& log) {
    std::vector<LogEntry> before;  // the first write of each variable
    absl::flat_hash_map<VarId, bool> seen;
    for (const LogEntry& entry : log) {
      if (program_.var(entry.var).block() == block) continue;
      if (seen.emplace(entry.var, true).second) before.push_back(entry);
    }
    for (const LogEntry& entry : before) {
      const RankValue inside = values_[entry.var.value()];
      values_[entry.var.value()] = entry.held;
      // What is given a value here only is used here only, or when the block has run.
      const Var var = program_.var(entry.var);
      const bool was_held = entry.is_held || var.persistable() || var.need_check_feed();
      Write(entry.var, was_held ? Select(condition, inside, HeldIn(entry)) : inside);
    }
  }

  RankValue HeldIn(const LogEntry& entry) {
    RankValue value = entry.held;
    if (table_ != nullptr && !value.expr.valid()) {
      value.expr = table_->Initial(program_.var(entry.var).name());
    }
    return value;
  }

  RankValue Select(const RankValue& condition, const RankValue& yes, const RankValue& no) {
    RankValue out = yes;
    out.place = Join(condition.place, Join(yes.place, no.place));
    out.rank = -1;
    out.terms = 0;
    const auto is_gradient = [](const RankValue& value) {
      return value.is_zero || value.is_gradient || value.place == Place::kReplicated;
    };
    out.is_gradient = out.place != Place::kReplicated && condition.IsSame() && is_gradient(yes) &&
                      is_gradient(no);
    const auto is_summed = [](const RankValue& value) {
      return value.is_zero || value.is_summed || value.place == Place::kReplicated;
    };
    out.is_summed = out.is_gradient && is_summed(yes) && is_summed(no);
    out.has_met = yes.has_met || no.has_met;
    out.is_zero = yes.is_zero && no.is_zero;
    out.is_mixed = yes.is_mixed || no.is_mixed;
    out.reductions = std::max(yes.reductions, no.reductions);
    if (yes.is_zero) {
      out.power = no.power;
    } else if (!no.is_zero && yes.power != no.power) {
      out.is_mixed = true;
    }
    if (!out.bent_by.valid()) out.bent_by = no.bent_by;
    if (!out.unscaled_in.valid()) out.unscaled_in = no.unscaled_in;
    if (table_ == nullptr) return out;
    const bool same = yes.expr == no.expr && SameFactor(yes.factor, no.factor) &&
                      yes.place == no.place && yes.rank == no.rank;
    if (same) return yes;
    double factor = 1;
    ExprId a = table_->Zero(), b = table_->Zero();
    if (yes.is_zero || no.is_zero || SameFactor(yes.factor, no.factor)) {
      factor = yes.is_zero ? no.factor : yes.factor;
      if (!yes.is_zero) a = PlacedExpr(yes);
      if (!no.is_zero) b = PlacedExpr(no);
    } else {
      a = ScaledExpr(yes);
      b = ScaledExpr(no);
    }
    out.factor = out.is_zero ? 0 : factor;
    out.own_factor = yes.own_factor != 0 ? yes.own_factor : no.own_factor;
    out.expr = table_->Select(ScaledExpr(condition), a, b);
    return out;
  }

  // A loop is a function of all that its block reads, by the op or by name.
  void VisitOpaqueBlock(const Op& op) {
    std::vector<Symbol> reads(op.input_args().begin(), op.input_args().end());
    std::vector<Symbol> writes(op.output_args().begin(), op.output_args().end());
    for (int block : op.SubBlocks()) CollectOuter(block, &reads, &writes);
    RankValue out;
    std::vector<RankValue> inputs;
    for (Symbol name : reads) {
      inputs.push_back(Read(name));
      if (!inputs.back().IsSame()) out.place = Place::kLocal;
    }
    std::string identity;
    if (table_ != nullptr) identity = absl::StrCat("loop ", operations_->Of(op).value());
    for (size_t i = 0; i < writes.size(); ++i) {
      const VarId var = Resolve(writes[i]);
      if (!var.valid()) continue;
      if (table_ != nullptr) out = Opaque(out, absl::StrCat(identity, " of ", i), inputs);
      Write(var, out);
    }
  }

  // Variables of the outside that the ops of a block read and write. A block that another loop has
  // runs as part of that one already.
  void CollectOuter(int block, std::vector<Symbol>* reads, std::vector<Symbol>* writes) {
    if (std::find(entered_.begin(), entered_.end(), block) != entered_.end()) return;
    entered_.push_back(block);
    const auto add = [&](absl::Span<const Symbol> args, std::vector<Symbol>* names) {
      for (Symbol name : args) {
        const VarId var = program_.block(block).Resolve(name);
        if (var.valid() && program_.var(var).block() != block && Resolve(name) == var) {
          names->push_back(name);
        }
      }
    };
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      add(op.input_args(), reads);
      add(op.output_args(), writes);
      for (int inner : op.SubBlocks()) CollectOuter(inner, reads, writes);
    }
  }

  // --- Functions ---------------------------------------------------------------------------------

  static Place Join(Place a, Place b) {
    if (a == b) return a;
    for (Place place : {Place::kLocal, Place::kShard}) {
      if (a == place || b == place) return Place::kLocal;
    }
    return Place::kOfRanks;
  }

  void VisitFunction(const Op& op, const RankRecipe& recipe) {
    const absl::Span<const Symbol> in = op.input_args();
    const absl::Span<const Symbol> out = op.output_args();
    size_t members = 0;
    bool all_alike = recipe.is_elementwise;
    for (Symbol name : in) {
      const Group* group = GroupOf(name);
      if (group == nullptr) continue;
      all_alike = all_alike && (members == 0 || members == group->size());
      members = group->size();
    }
    for (Symbol name : out) {
      const Group* group = GroupOf(name);
      if (group == nullptr && members == 0) continue;
      all_alike = all_alike && group != nullptr && (members == 0 || members == group->size());
      if (group != nullptr) members = group->size();
    }
    member_visits_ += static_cast<int64_t>(members);
    if (members > 0 && member_visits_ > kMaxMemberVisits) return VisitUnfollowed(op);
    if (members == 0) {
      Gather(in);
      Transfer(op, recipe);
      for (size_t i = 0; i < out.size(); ++i) Write(Resolve(out[i]), outs_[i]);
    } else if (all_alike) {
      for (size_t m = 0; m < members; ++m) VisitMember(op, recipe, m);
    } else {
      VisitWhole(op, recipe);
    }
  }

  // Too much work: what comes out is taken to be own to each rank, and nothing that is known.
  void VisitUnfollowed(const Op& op) {
    RankValue out;
    if (!is_single_) out.place = Place::kLocal;
    for (Symbol name : op.output_args()) {
      if (table_ != nullptr) out = Opaque(out, absl::StrCat("unfollowed ", op.id().value()), {});
      const Group* group = GroupOf(name);
      const Group members = group == nullptr ? Group{Resolve(name)} : *group;
      for (VarId member : members) Write(member, out);
    }
  }

  void Gather(absl::Span<const Symbol> in) {
    ins_.clear();
    for (Symbol name : in) ins_.push_back(Read(name));
  }

  // The op on member m of every buffer that it is given.
  void VisitMember(const Op& op, const RankRecipe& recipe, size_t m) {
    ins_.clear();
    for (Symbol name : op.input_args()) {
      const Group* group = GroupOf(name);
      ins_.push_back(group == nullptr ? Read(name) : Read(program_.var((*group)[m]).name_symbol()));
    }
    Transfer(op, recipe);
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) Write((*GroupOf(out[i]))[m], outs_[i]);
  }

  // The op on buffers as a whole: what comes out is not followed member by member.
  void VisitWhole(const Op& op, const RankRecipe& recipe) {
    ins_.clear();
    for (Symbol name : op.input_args()) {
      const Group* group = GroupOf(name);
      if (group == nullptr) {
        ins_.push_back(Read(name));
        continue;
      }
      RankValue whole;
      std::vector<RankValue> members;
      for (VarId member : *group) {
        members.push_back(Read(program_.var(member).name_symbol()));
        whole.place = Join(whole.place, members.back().place);
        whole.reductions = std::max(whole.reductions, members.back().reductions);
        if (members.back().power != 0) whole.power = members.back().power;
        whole.is_mixed = whole.is_mixed || members.back().is_mixed;
      }
      ins_.push_back(Opaque(whole, "fused", members));
    }
    Transfer(op, recipe);
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) {
      const Group* group = GroupOf(out[i]);
      if (group == nullptr) {
        Write(Resolve(out[i]), outs_[i]);
        continue;
      }
      const Group members = *group;
      for (size_t m = 0; m < members.size(); ++m) {
        Write(members[m], Opaque(outs_[i], absl::StrCat("member ", m, " of"), {outs_[i]}));
      }
    }
  }

  // From ins_ to outs_.
  void Transfer(const Op& op, const RankRecipe& recipe) {
    outs_.assign(op.output_args().size(), RankValue());
    switch (recipe.algebra) {
      case Algebra::kSum:
      case Algebra::kCopy:
        return SetAll(Combine(op, std::vector<double>(ins_.size(), 1)));
      case Algebra::kAdd:
      case Algebra::kSubtract: {
        if (table_ != nullptr && AxisOf(op) != -1) {
          const std::string broadcast = absl::StrCat("broadcast ", AxisOf(op));
          ins_[recipe.y].expr =
              table_->Call(table_->Operation(broadcast, "broadcast"), {ins_[recipe.y].expr});
        }
        std::vector<double> factors = {1, 1};
        if (recipe.algebra == Algebra::kSubtract) factors[recipe.y] = -1;
        return SetAll(Combine(op, factors));
      }
      case Algebra::kScale:
        if (ins_.size() != 1 || NumberAttr(op, "bias", 0) != 0) break;
        return SetAll(Scale(op, NumberAttr(op, "scale", 1)));
      case Algebra::kCast:
        if (ins_.size() != 1 || !IsFloatCast(op)) break;
        return SetAll(Cast(op));
      case Algebra::kSplitEqual:
        if (SplitGathered(op)) return;
        break;
      case Algebra::kZeros: {
        RankValue zero;
        zero.is_zero = true;
        zero.factor = 0;
        if (table_ != nullptr) zero.expr = table_->Zero();
        return SetAll(zero);
      }
      default:
        break;
    }
    Apply(op, recipe);
  }

  void SetAll(const RankValue& value) { std::fill(outs_.begin(), outs_.end(), value); }

  int AxisOf(const Op& op) {
    const OperationId operation = operations_->Of(op);
    if (operation.value() >= axes_.size()) axes_.resize(operation.value() + 1, kNoAxis);
    int& axis = axes_[operation.value()];
    if (axis == kNoAxis) axis = static_cast<int>(NumberAttr(op, "axis", -1));
    return axis;
  }

  // The parts of all ranks, added up: n of them, each once.
  bool AreAllRanks() const {
    if (!options_.nranks.has_value() || static_cast<int>(ins_.size()) != *options_.nranks) {
      return false;
    }
    std::vector<bool> seen(ins_.size(), false);
    for (const RankValue& in : ins_) {
      if (in.place != Place::kOfRanks || in.rank < 0 || in.rank >= static_cast<int>(seen.size()) ||
          seen[in.rank] || in.expr != ins_[0].expr || !SameFactor(in.factor, ins_[0].factor) ||
          in.power != ins_[0].power || in.gathered_by != ins_[0].gathered_by) {
        return false;
      }
      seen[in.rank] = true;
    }
    return true;
  }

  // ins_ times factors, added up.
  RankValue Combine(const Op& op, const std::vector<double>& factors) {
    const bool all_one =
        std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
    if (ins_.size() > 1 && all_one && AreAllRanks()) {
      RankValue own = ins_[0];
      own.place = Place::kLocal;
      RankValue sum = Summed(op, own);
      sum.reductions = ins_[0].reductions;
      sum.rank = -1;
      return sum;
    }
    RankValue out;
    bool is_first = true, all_gradient = true, all_summed = true;
    const RankValue* local = nullptr;
    for (const RankValue& in : ins_) {
      if (in.is_zero) continue;
      const bool is_own = !in.IsSame();
      if (is_first) {
        out.place = in.place;
        out.rank = in.rank;
        out.gathered_by = in.gathered_by;
        out.power = in.power;
      } else {
        out.place = Join(out.place, in.place);
        if (out.rank != in.rank || in.place == Place::kOfRanks) out.rank = -1;
        if (out.power != in.power) out.is_mixed = true;
      }
      if (is_own && local == nullptr) local = &in;
      is_first = false;
      if (in.place != Place::kReplicated) {
        all_gradient = all_gradient && in.is_gradient;
        all_summed = all_summed && in.is_summed;
      }
      out.has_met = out.has_met || in.has_met;
      if (!out.bent_by.valid()) out.bent_by = in.bent_by;
      if (!out.unscaled_in.valid()) out.unscaled_in = in.unscaled_in;
      out.is_mixed = out.is_mixed || in.is_mixed;
      out.reductions = std::max(out.reductions, in.reductions);
    }
    if (is_first) {
      out.is_zero = true;
      out.factor = 0;
      if (table_ != nullptr) out.expr = table_->Zero();
      return out;
    }
    out.is_gradient = out.place != Place::kReplicated && all_gradient;
    out.is_summed = out.is_gradient && all_summed;
    out.has_met = out.has_met && out.IsSame();
    if (local != nullptr) out.power = local->power;
    if (table_ == nullptr) return out;
    SumExpressions(op, factors, &out);
    return out;
  }

  void SumExpressions(const Op& op, const std::vector<double>& factors, RankValue* out) {
    std::vector<Term> terms;
    bool keeps_places = false;
    for (size_t i = 0; i < ins_.size(); ++i) {
      if (ins_[i].is_zero) continue;
      // A single operand keeps its place, and so do several parts; else they are made the same kind
      // of thing.
      const bool keeps_place = ins_.size() == 1 || out->place == Place::kShard;
      const ExprId expr = keeps_place ? ins_[i].expr : PlacedExpr(ins_[i]);
      terms.push_back({expr, ins_[i].factor * factors[i]});
      keeps_places = keeps_places || ins_[i].terms != 0 ||
                     (ins_[i].place == Place::kLocal && !ins_[i].is_gradient);
    }
    if (out->place == Place::kLocal && keeps_places && !IsForward(op)) {
      std::vector<PlacedTerm> placed;
      for (size_t i = 0; i < ins_.size(); ++i) {
        const RankValue& in = ins_[i];
        if (in.is_zero) continue;
        if (in.terms == 0) {
          placed.push_back({in.expr, in.factor * factors[i], in.IsSame(), in.is_summed});
          continue;
        }
        for (const PlacedTerm& term : terms_[in.terms]) {
          placed.push_back(
              {term.expr, term.factor * in.factor * factors[i], term.is_same, term.is_summed});
        }
      }
      if (placed.size() > 1 && placed.size() <= kMaxTerms) {
        out->terms = static_cast<uint32_t>(terms_.size());
        terms_.push_back(std::move(placed));
      }
    }
    for (size_t i = 0; i < ins_.size() && out->own_factor == 0; ++i) {
      if (!ins_[i].is_zero && !ins_[i].IsSame()) out->own_factor = ins_[i].factor * factors[i];
    }
    double common = 1;
    out->expr = table_->Sum(&terms, &common);
    out->factor = common;
    out->is_zero = common == 0;
    // Factors of terms that are kept are those of the whole value, so it must be 1 times them.
    if (out->terms != 0) {
      for (PlacedTerm& term : terms_[out->terms]) term.factor /= common == 0 ? 1 : common;
    }
  }

  static bool IsForward(const Op& op) {
    return (op.role() & (kRoleBackward | kRoleOptimize | kRoleDist | kRoleNotSpecified)) == 0;
  }

  RankValue Scale(const Op& op, double scale) {
    RankValue out = Combine(op, {scale});
    // A division by the number of ranks: where the op says so, where a sum over them goes before,
    // or where the gradient of a loss is divided before the backward pass.
    const bool divides =
        options_.nranks.has_value() && SameFactor(scale * n_, 1) && *options_.nranks > 1;
    if (!divides || is_single_) return out;
    const bool is_loss_grad = IsBackward(op) && out.place == Place::kReplicated &&
                              out.reductions == 0 && op.input_args()[0] == op.output_args()[0];
    if (op.HasAttr(kNumRanksAttr) || out.power > 0 || is_loss_grad) {
      if (out.power > -100) --out.power;
    }
    return out;
  }

  // Integers have no means.
  static bool IsFloatCast(const Op& op) {
    const auto is_floating = [&](absl::string_view attr) {
      const absl::optional<DType> dtype =
          DTypeFromProto(static_cast<int>(NumberAttr(op, attr, -1)));
      return dtype.has_value() && IsFloating(*dtype);
    };
    return is_floating("in_dtype") && is_floating("out_dtype");
  }

  RankValue Cast(const Op& op) {
    RankValue out = ins_[0];
    if (table_ == nullptr) return out;
    out.expr = CastExpr(out.expr, static_cast<int>(NumberAttr(op, "out_dtype", -1)));
    out.terms = 0;
    return out;
  }

  ExprId CastExpr(ExprId expr, int dtype) {
    return table_->Call(table_->Operation(absl::StrCat("cast ", dtype), "cast"), {expr});
  }

  // Part i of what was gathered is the value of rank i.
  bool SplitGathered(const Op& op) {
    if (ins_.empty() || ins_[0].place != Place::kGathered || !options_.nranks.has_value()) {
      return false;
    }
    const bool by_rank = NumberAttr(op, "axis", 0) == 0 && ins_.size() == 1 &&
                         NumberAttr(op, "num", 0) == *options_.nranks &&
                         static_cast<int>(outs_.size()) == *options_.nranks;
    if (!by_rank) return false;
    for (size_t i = 0; i < outs_.size(); ++i) {
      outs_[i] = ins_[0];
      outs_[i].place = Place::kOfRanks;
      outs_[i].rank = static_cast<int32_t>(i);
      outs_[i].gathered_by = op.id();
    }
    return true;
  }

  // Any function of ins_.
  void Apply(const Op& op, const RankRecipe& recipe) {
    RankValue out;
    bool has_shard = false, only_shards = true;
    // What the op is linear in: all of its inputs, those of some slots, one factor of a product.
    int num_varying = 0;
    bool is_linear = recipe.is_linear || recipe.algebra == Algebra::kBackward;
    if (recipe.algebra == Algebra::kMultiply || recipe.algebra == Algebra::kDivide) {
      for (const RankValue& in : ins_) num_varying += in.place == Place::kReplicated ? 0 : 1;
      is_linear = num_varying <= 1 && (recipe.algebra == Algebra::kMultiply ||
                                       ins_[recipe.y].place == Place::kReplicated);
    }
    bool all_gradient = is_linear, all_summed = is_linear, has_gradient = false, has_power = false,
         first_operand = true;
    double common = 1;
    bool same_factor = true;
    for (size_t i = 0; i < ins_.size(); ++i) {
      const RankValue& in = ins_[i];
      out.place = i == 0 ? in.place : Join(out.place, in.place);
      has_shard = has_shard || in.place == Place::kShard;
      only_shards = only_shards && (in.place == Place::kShard || in.place == Place::kReplicated);
      out.rank = i == 0 || in.rank == out.rank ? in.rank : -1;
      if (!out.bent_by.valid()) out.bent_by = in.bent_by;
      if (!out.unscaled_in.valid()) out.unscaled_in = in.unscaled_in;
      out.is_mixed = out.is_mixed || in.is_mixed;
      has_gradient = has_gradient || in.is_gradient;
      out.reductions = std::max(out.reductions, in.reductions);
      if (in.power != 0 && !in.is_zero) has_power = true;
      if (!recipe.is_operand[i] || in.is_zero) continue;
      if (in.place != Place::kReplicated && !in.is_gradient) all_gradient = false;
      if (in.place != Place::kReplicated && !in.is_summed) all_summed = false;
      if (first_operand) {
        out.power = in.power;
        common = in.factor;
      } else {
        if (in.power != out.power && is_linear && num_varying == 0) out.is_mixed = true;
        same_factor = same_factor && SameFactor(in.factor, common);
      }
      first_operand = false;
    }
    if (out.place == Place::kGathered) out.place = Place::kOfRanks;
    const bool is_product =
        recipe.algebra == Algebra::kMultiply || recipe.algebra == Algebra::kDivide;
    if (is_product) out.power = ProductPower(recipe);
    const bool has_operand = std::find(recipe.is_operand.begin(), recipe.is_operand.end(), true) !=
                             recipe.is_operand.end();
    out.is_zero = is_linear && !is_product && has_operand && first_operand;
    out.is_gradient = out.place != Place::kReplicated && all_gradient;
    out.is_summed = out.is_gradient && all_summed;
    if (out.place != Place::kReplicated && has_gradient && !all_gradient && !out.bent_by.valid()) {
      out.bent_by = op.id();
    }
    if (!is_linear && has_power) {
      out.power = FirstPower();
      if (!out.unscaled_in.valid()) out.unscaled_in = op.id();
    }
    if (recipe.algebra == Algebra::kRandom && !is_single_ && NumberAttr(op, "seed", 0) == 0) {
      out.place = Place::kLocal;
      out.is_gradient = out.is_summed = false;
    }
    const bool is_unknown_source =
        recipe.schema == nullptr && ins_.empty() && recipe.algebra == Algebra::kNone;
    if (is_unknown_source && !is_single_) out.place = Place::kLocal;
    const bool shard_by_shard = has_shard && only_shards && recipe.is_elementwise;
    if (has_shard) out.place = shard_by_shard ? Place::kShard : Place::kLocal;
    const bool is_update = recipe.param.count > 0 && recipe.grad.count == recipe.param.count;
    if (is_update) {
      Update(op, recipe);
      out.power = 0;
      out.reductions = 0;
      out.is_mixed = false;
      out.bent_by = OpId();
      out.unscaled_in = OpId();
      out.is_gradient = out.is_summed = false;
    }
    SetAll(out);
    if (out.is_gradient && recipe.algebra == Algebra::kBackward) FindSummed(op, recipe);
    if (shard_by_shard) {
      // The powers of beta, for one, stay whole.
      for (size_t i = 0; i < outs_.size(); ++i) {
        const int of = recipe.in_place_of[i];
        if (of >= 0) outs_[i].place = ins_[of].place;
      }
    }
    const bool may_be_zero = recipe.algebra == Algebra::kConstant && recipe.schema != nullptr &&
                             recipe.schema->FindAttr("value") != nullptr && ins_.empty();
    if (may_be_zero && NumberAttr(op, "value", 0) == 0) {
      for (RankValue& value : outs_) value.is_zero = IsZeroText(op);
    }
    if (table_ != nullptr)
      ApplyExpressions(op, recipe, is_linear && !is_product, same_factor, common, shard_by_shard);
  }

  // A value that is given as text may be something else than attribute value says.
  static bool IsZeroText(const Op& op) {
    const auto text = op.FindAttr("str_value");
    if (!text.has_value() || text->s().empty()) return true;
    return text->s() == "0" || text->s() == "0.0";
  }

  // Which gradients are summed over the samples: those of parameters, and of whatever else does not
  // depend on the samples.
  void FindSummed(const Op& op, const RankRecipe& recipe) {
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < outs_.size(); ++i) {
      const int input = recipe.forward_input[i];
      // Where the op does not need the value itself, the name of the gradient tells whose it is.
      const VarId forward = input >= 0 ? Resolve(op.input_args()[input]) : ForwardOf(out[i]);
      if (forward.valid()) {
        outs_[i].is_summed =
            program_.var(forward).persistable() || values_[forward.value()].IsSame();
        continue;
      }
      outs_[i].is_summed = std::all_of(ins_.begin(), ins_.end(), [](const RankValue& in) {
        return in.IsSame() || in.is_summed;
      });
    }
  }

  // Of "w@GRAD", or "w@GRAD@RENAME@block0@1": w. Invalid where there is none.
  VarId ForwardOf(Symbol gradient) {
    if (forward_of_.empty()) forward_of_.assign(program_.symbols().size(), kNotLookedUp);
    int64_t& found = forward_of_[gradient.value()];
    if (found == kNotLookedUp) {
      const absl::string_view name = program_.name(gradient);
      const size_t suffix = name.find(kGradSuffix);
      const Symbol forward = suffix == absl::string_view::npos
                                 ? Symbol()
                                 : program_.FindSymbol(name.substr(0, suffix));
      const VarId var = forward.valid() ? Resolve(forward) : VarId();
      found = var.valid() ? static_cast<int64_t>(var.value()) : kNone;
    }
    return found == kNone ? VarId() : VarId(static_cast<uint32_t>(found));
  }

  int8_t FirstPower() const {
    for (const RankValue& in : ins_) {
      if (in.power != 0 && !in.is_zero) return in.power;
    }
    return 0;
  }

  int8_t ProductPower(const RankRecipe& recipe) const {
    int power = 0;
    for (size_t i = 0; i < ins_.size(); ++i) {
      const bool is_divisor = recipe.algebra == Algebra::kDivide && i == recipe.y;
      power += is_divisor ? -ins_[i].power : ins_[i].power;
    }
    return static_cast<int8_t>(std::max(-100, std::min(100, power)));
  }

  void Update(const Op& op, const RankRecipe& recipe) {
    if (options_.observer == nullptr) return;
    for (uint32_t i = 0; i < recipe.param.count; ++i) {
      options_.observer->OnUpdate(op, ins_[recipe.param.first + i], ins_[recipe.grad.first + i]);
    }
  }

  void ApplyExpressions(const Op& op, const RankRecipe& recipe, bool is_linear, bool same_factor,
                        double common, bool shard_by_shard) {
    OperationId operation = operations_->Of(op);
    if (recipe.algebra == Algebra::kRandom) {
      // Every draw is another value; the same draw of both programs is the same.
      const int run = runs_[operation]++;
      operation = table_->Operation(absl::StrCat("draw ", run, " of ", operation.value()),
                                    absl::StrCat(op.type(), "[", run, "]"));
    }
    operands_.clear();
    const bool pulls_factor = is_linear && same_factor && common != 0;
    for (uint32_t i : operations_->OperandOrder(op)) {
      const bool is_pulled = pulls_factor && recipe.is_operand[i];
      if (ins_[i].is_zero && recipe.is_operand[i]) {
        operands_.push_back(table_->Zero());
      } else {
        // Part by part, an op on parts is the part of the op.
        const ExprId expr = shard_by_shard ? ins_[i].expr : PlacedExpr(ins_[i]);
        operands_.push_back(is_pulled ? expr : table_->Scaled(expr, ins_[i].factor));
      }
    }
    const ExprId first = table_->Call(operation, operands_, operations_->NumOutputs(op));
    for (size_t i = 0; i < outs_.size(); ++i) {
      RankValue& out = outs_[i];
      out.expr = out.is_zero ? table_->Zero()
                             : ExpressionTable::Output(first, operations_->OutputIndex(op, i));
      out.factor = out.is_zero ? 0 : pulls_factor ? common : 1;
    }
    CastMaster(op, recipe);
  }

  // A parameter that has a master weight is that, in less precision.
  void CastMaster(const Op& op, const RankRecipe& recipe) {
    const uint32_t num_inputs = op.layout().num_input_args;
    for (uint32_t i = 0; i < std::min(recipe.master_out.count, recipe.param_out.count); ++i) {
      const VarId param = Resolve(op.args(recipe.param_out)[i]);
      const VarId master = Resolve(op.args(recipe.master_out)[i]);
      if (!param.valid() || !master.valid()) continue;
      const auto tensor = program_.var(param).Tensor();
      if (!tensor.has_value()) continue;
      RankValue& out = outs_[recipe.param_out.first - num_inputs + i];
      out = outs_[recipe.master_out.first - num_inputs + i];
      out.expr = CastExpr(out.expr, tensor->data_type());
    }
  }

  static constexpr int kNoAxis = INT32_MIN;
  static constexpr int64_t kNotLookedUp = -2;
  static constexpr int64_t kNone = -1;

  const Program& program_;
  const RankValuesOptions& options_;
  ExpressionTable* const table_;
  const bool is_single_;  // nothing can differ between ranks
  const double n_;
  const Symbol empty_;
  absl::optional<OpOperations> operations_;
  OperationId gathered_, shard_;

  std::vector<RankRecipe> recipes_;  // by layout
  std::vector<RankValue> values_;    // by VarId
  std::vector<int> fused_;           // by VarId: into groups_; -1: no buffer
  std::vector<Group> groups_;
  std::vector<std::vector<PlacedTerm>> terms_;  // by RankValue::terms; 0: none
  std::vector<int> axes_;                       // by operation
  absl::flat_hash_map<OperationId, int> runs_;  // of random ops
  // What variables held before the blocks that are being walked wrote them.
  std::vector<std::vector<LogEntry>> logs_;
  std::vector<bool> is_held_;        // by VarId: written in this walk
  std::vector<int64_t> forward_of_;  // by Symbol: see ForwardOf
  int64_t member_visits_ = 0;
  std::vector<int> entered_;
  int block_ = 0;
  std::vector<RankValue> ins_, outs_;
  std::vector<ExprId> operands_;
  RankValues result_;
};

RankValues RankValues::Of(const Program& program, const RankValuesOptions& options) {
  return RankInterpreter(program, options).Run();
}

}  // namespace weft
