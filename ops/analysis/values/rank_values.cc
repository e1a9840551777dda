#include "ops/analysis/values/rank_values.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/linear_blocks.h"
#include "ops/analysis/values/op_operations.h"
#include "ops/analysis/values/rank_expressions.h"
#include "ops/analysis/values/rank_functions.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/analysis/values/rank_steps.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/feed_ops.h"
#include "proto/program.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

// Ops on buffers visit their members; beyond this many visits in a walk they are not followed.
constexpr int64_t kMaxMemberVisits = 1 << 22;

}  // namespace

// The walk, op by op. RankFunctions computes the values of outputs, RankExpressions their
// expressions; RankMemory has the values of variables.
class RankInterpreter {
 public:
  RankInterpreter(const Program& program, const RankValuesOptions& options)
      : program_(program),
        options_(options),
        expressions_(options.table),
        memory_(program, &expressions_) {
    if (options.table != nullptr) operations_.emplace(program, options.table);
    functions_.emplace(program, options, memory_, &expressions_,
                       operations_.has_value() ? &*operations_ : nullptr, &events_);
    // Lifts count all ranks.
    if (options.batch == nullptr || !options.group.empty()) return;
    for (const BatchLift& lift : options.batch->lifts()) lifts_.emplace(lift.op, lift.power);
  }

  RankValues Run() {
    RankValues result;
    RankSteps steps(program_, options_, memory_);
    for (int walk = 0; walk < kMaxWalks; ++walk) {
      const bool makes_expressions = options_.first_expression == 0;
      std::vector<RankValue> values = memory_.TakeValues();
      steps.SetStart(&values);
      memory_.Start(std::move(values));
      expressions_.StartWalk(makes_expressions);
      functions_->StartWalk();
      entered_.clear();
      written_by_block_.clear();
      member_visits_ = 0;
      exchanges_.clear();
      events_ = RankEvents();
      WalkRoot();
      if (options_.is_startup || options_.IsOneRank()) break;
      const Widening widening = walk + 2 >= kMaxWalks         ? Widening::kAll
                                : walk >= kWalksOfShortChains ? Widening::kChanged
                                                              : Widening::kNone;
      if (steps.CarryOver(widening) && walk + 1 < kMaxWalks) continue;
      if (lifts_.empty() ||
          absl::c_all_of(events_.updates, [](const RankUpdate& u) { return u.IsEqualOnRanks(); })) {
        break;
      }
      // Ranks that update by values of their own compute no value of one device: once more.
      lifts_.clear();
      steps.Restart();
      walk = -1;
    }
    result.is_written_ = memory_.is_held();
    result.events_ = std::move(events_);
    result.sum_gradients_ = functions_->sums().gradients;
    result.end_ = memory_.TakeValues();
    result.first_placements_ = steps.FirstPlacements();
    result.carried_ = steps.TakeCarried();
    return result;
  }

 private:
  using Group = RankMemory::Group;

  // --- Walking -----------------------------------------------------------------------------------

  void WalkRoot() {
    const absl::Span<const OpId> ops = program_.block(0).ops();
    if (options_.table == nullptr || options_.first_expression == 0) return Walk(0);
    const size_t first = std::min(options_.first_expression, ops.size());
    if (!options_.is_one_device) {
      for (OpId id : ops.first(first)) Visit(program_.op(id));
    }
    expressions_.Begin();
    memory_.ForgetExpressions(options_.RankFactor());
    for (OpId id : ops.subspan(first)) Visit(program_.op(id));
  }

  void Walk(int block) {
    memory_.Over(block, [&](const Op& op) { Visit(op); });
  }

  void Visit(const Op& op) {
    const SignatureFacts& facts = memory_.FactsOf(op);
    switch (facts.kind) {
      case SignatureFacts::Kind::kIgnored:
        return VisitIgnored(op);
      case SignatureFacts::Kind::kFeed:
        return VisitFeed(op);
      case SignatureFacts::Kind::kFuse:
        return VisitFuse(op);
      case SignatureFacts::Kind::kBranch:
        return VisitBranch(op);
      case SignatureFacts::Kind::kCollective:
        if (options_.is_one_device) break;
        if (!IsOfGroup(op)) return VisitForeignCollective(op);
        return VisitCollective(op, *FindCollectiveOp(op));
      case SignatureFacts::Kind::kOpaqueBlock:
        events_.conditions.push_back({op.id(), Symbol(), RankValue()});
        return VisitOpaqueBlock(op);
      case SignatureFacts::Kind::kBlockGrad:
        events_.conditions.push_back({op.id(), Symbol(), RankValue()});
        return VisitBlockGrad(op, facts);
      case SignatureFacts::Kind::kFunction:
        if (lifts_.contains(op.id())) return VisitLift(op);
        break;
    }
    VisitFunction(op, facts);
  }

  // Outputs that are no inputs have unknown values.
  void VisitIgnored(const Op& op) {
    const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
    if (IsFetch(op.type()) && op.block() == 0) {
      for (Symbol name : in) {
        const VarId var = memory_.Resolve(name);
        if (!var.valid()) continue;
        events_.fetches.push_back({op.id(), var, memory_.Read(var), expressions_.AreMade()});
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const bool is_at_its_place = i < in.size() && in[i] == out[i];
      if (is_at_its_place || std::find(in.begin(), in.end(), out[i]) != in.end()) continue;
      const VarId var = memory_.Resolve(out[i]);
      if (var.valid() && program_.var(var).type() == pb::VarType::LOD_TENSOR) WriteUnknown(op, var);
    }
  }

  void WriteUnknown(const Op& op, VarId var) {
    RankValue unknown;
    if (!options_.IsOneRank()) unknown.placement = Placement::kLocal;
    unknown.has_unknown_scale = true;
    memory_.Write(var, expressions_.Opaque(unknown, absl::StrCat("unknown ", op.id().value()), {},
                                           "unknown"));
  }

  void VisitFeed(const Op& op) {
    for (size_t i = 0; i < op.output_args().size(); ++i) {
      const Symbol name = op.output_args()[i];
      const VarId var = memory_.Resolve(name);
      if (!var.valid()) continue;
      RankValue value;
      const bool is_own = !options_.IsOneRank() && !options_.IsWhole(program_.name(name));
      value.placement = is_own ? Placement::kLocal : Placement::kReplicated;
      if (expressions_.AreMade()) {
        const std::string column =
            absl::StrCat(op.type(), " ", op.IntAttr("col").value_or(static_cast<int64_t>(i)));
        value.expr = expressions_.Named(column, column,
                                        {expressions_.table()->Initial(program_.name(name))});
      }
      memory_.Write(var, value);
    }
  }

  // --- Buffers of several variables --------------------------------------------------------------

  void VisitFuse(const Op& op) {
    const Storage::Buffer& buffer = *memory_.storage().MadeBy(op.id());
    for (size_t i = 0; i < buffer.parts.size(); ++i) {
      const VarId var = memory_.Resolve(buffer.parts[i]);
      if (!var.valid()) continue;
      if (buffer.copies && i < buffer.sources.size()) {
        memory_.Write(var, memory_.Read(buffer.sources[i]));
      } else if (buffer.constant.has_value()) {
        RankValue value;
        const double constant = *buffer.constant;
        value.is_zero = constant == 0;
        if (expressions_.AreMade()) {
          value.expr = constant == 0 ? expressions_.table()->Zero()
                                     : expressions_.Named(absl::StrCat("constant ", constant),
                                                          absl::StrCat(constant));
        }
        memory_.Write(var, value);
      } else if (memory_.IsHeld(var) || program_.var(var).persistable()) {
        // The variable moves to the buffer, without its value.
        WriteUnknown(op, var);
      }
    }
    memory_.Fuse(buffer);
  }

  // --- Collectives -------------------------------------------------------------------------------

  // Whether the ring of the collective connects the ranks whose values these are.
  bool IsOfGroup(const Op& op) const {
    if (options_.group.empty() && !op.HasAttr(kGroupRanksAttr)) return true;
    const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    if (!ranks.ok()) return false;  // W308
    const bool has_all = options_.group.empty() && options_.HasRanks(ranks->size());
    return *ranks == options_.group || has_all;
  }

  void VisitForeignCollective(const Op& op) {
    for (Symbol name : op.output_args()) {
      RankValue out;
      out.placement = Placement::kLocal;
      out.has_unknown_scale = true;
      out.first_nonlinear_op = op.id();
      out =
          expressions_.Opaque(out, absl::StrCat("other ring ", op.id().value()), {}, "other ring");
      for (VarId member : memory_.MembersOf(name)) memory_.Write(member, out);
    }
  }

  void VisitCollective(const Op& op, const CollectiveOp& collective) {
    const absl::Span<const Symbol> in = collective.Inputs(op), out = collective.Outputs(op);
    for (size_t i = 0; i < std::min(in.size(), out.size()); ++i) {
      const Group* group = memory_.GroupOf(in[i]);
      if (group == nullptr && memory_.GroupOf(out[i]) == nullptr) {
        Exchange(op, collective, in[i], memory_.Resolve(in[i]), memory_.Resolve(out[i]));
        continue;
      }
      if (group != nullptr && in[i] == out[i]) {
        for (VarId member : *group) {
          Exchange(op, collective, program_.var(member).name_symbol(), member, member);
        }
        continue;
      }
      // From one buffer into another: not followed.
      RankValue whole;
      whole.placement = Placement::kLocal;
      whole = expressions_.Opaque(whole, absl::StrCat("fused collective ", op.id().value()), {});
      for (VarId member : memory_.MembersOf(out[i])) memory_.Write(member, whole);
    }
  }

  void Exchange(const Op& op, const CollectiveOp& collective, Symbol name, VarId in, VarId out) {
    if (!in.valid()) return;
    const RankValue value = memory_.Read(in);
    if (lifts_.contains(op.id()) && !value.is_gradient) {
      RankValue lifted = Lifted(op, value);
      lifted.has_samples_of_ranks = collective.kind == CollectiveKind::kAllGather;
      return memory_.Write(out, lifted);
    }
    events_.exchanges.push_back({op.id(), value});
    RankValue result = functions_->AfterCollective(op, collective, value);
    result.has_merged_rows = false;  // ranks have rows of one index
    memory_.Write(out, options_.names_exchanges ? Named(op, collective, name, result) : result);
  }

  // The same on all ranks by the number of the call.
  RankValue Named(const Op& op, const CollectiveOp& collective, Symbol name, RankValue result) {
    const bool gives_to_all = collective.kind == CollectiveKind::kAllReduce ||
                              collective.kind == CollectiveKind::kAllGather ||
                              collective.kind == CollectiveKind::kBroadcast;
    if (!gives_to_all || !expressions_.AreMade()) return result;
    const int64_t ring = op.IntAttr("ring_id").value_or(0);
    const std::string call = absl::StrCat("call ", exchanges_[ring]++, " on ring ", ring);
    result = RankValue();
    result.expr = expressions_.Named(absl::StrCat(call, " of ", program_.name(name)), call);
    return result;
  }

  // A division by the number of ranks.
  void VisitLift(const Op& op) {
    memory_.Write(memory_.Resolve(op.output_args()[0]),
                  Lifted(op, memory_.Read(op.input_args()[0])));
  }

  RankValue Lifted(const Op& op, RankValue value) const {
    const int power = lifts_.at(op.id());
    value.placement = Placement::kReplicated;
    value.factor *= std::pow(options_.RankFactor(), power);
    value.ChangeUnscaledSums(power);
    return value;
  }

  // --- Blocks ------------------------------------------------------------------------------------

  void VisitBranch(const Op& op) {
    const RankValue condition = ConditionOf(op);
    for (int block : op.SubBlocks()) {
      if (std::find(entered_.begin(), entered_.end(), block) != entered_.end()) {
        // The number of ways into a block may be exponential in the size of the program.
        events_.conditions.push_back({op.id(), Symbol(), RankValue()});
        for (VarId var : written_by_block_[block]) WriteUnknown(op, var);
        continue;
      }
      entered_.push_back(block);
      memory_.BeginLog();
      Walk(block);
      const std::vector<RankMemory::LogEntry> log = memory_.EndLog();
      LeaveBranch(block, condition, log);
      for (const RankMemory::LogEntry& entry : log) {
        const Var var = program_.var(entry.var);
        if (var.block() != block || var.persistable()) {
          written_by_block_[block].push_back(entry.var);
        }
      }
    }
  }

  // One bool, or whether all of several tensors are non-empty.
  RankValue ConditionOf(const Op& op) {
    std::vector<RankValue> all;
    RankValue joined;
    for (Symbol name : op.Input("Cond")) {
      all.push_back(memory_.Read(name));
      events_.conditions.push_back({op.id(), name, all.back()});
      joined.placement = JoinPlacements(joined.placement, all.back().placement);
      joined.has_unknown_scale = joined.has_unknown_scale || all.back().has_unknown_scale;
    }
    if (all.size() != 1 || !op.BoolAttr("is_scalar_condition").value_or(false)) {
      return expressions_.Call(joined, "none is empty", all);
    }
    all[0].placement = joined.placement;
    return all[0];
  }

  // Variables keep their values, or have those from the block.
  void LeaveBranch(int block, const RankValue& condition,
                   const std::vector<RankMemory::LogEntry>& log) {
    const bool began_later = options_.first_expression > 0 && expressions_.AreMade();
    for (const RankMemory::LogEntry& entry : log) {
      const Var var = program_.var(entry.var);
      // A persistable variable outlives the run of its block.
      if (var.block() == block && !var.persistable()) continue;
      const RankValue inside = memory_.TakeBack(entry);
      // Any other variable without an earlier value is read only inside, or if the block has run.
      const bool was_held =
          entry.is_held || began_later || memory_.OutlivesStep(entry.var) || var.need_check_feed();
      memory_.Write(
          entry.var,
          was_held ? functions_->Select(condition, inside, memory_.HeldBefore(entry)) : inside);
    }
  }

  // What the ops of a block access and outlives a run of it: variables of outer blocks, by name,
  // and persistable ones of the block itself.
  struct OuterAccesses {
    std::vector<Symbol> reads, writes;
    std::vector<VarId> reads_of_states, writes_of_states;
  };

  // A loop is a function of all that the op or its block reads, and of what it writes: it may run
  // zero times.
  void VisitOpaqueBlock(const Op& op) {
    OuterAccesses all = AccessesOf(op);
    for (int block : op.SubBlocks()) CollectOuter(block, &all);
    const auto has_value = [&](VarId var) {
      return var.valid() && (memory_.IsHeld(var) || memory_.OutlivesStep(var));
    };
    absl::c_copy_if(all.writes, std::back_inserter(all.reads),
                    [&](Symbol name) { return has_value(memory_.Resolve(name)); });
    absl::c_copy_if(all.writes_of_states, std::back_inserter(all.reads_of_states), has_value);
    WriteOpaque(op, ReadAll(all), all);
  }

  // What the op lists.
  OuterAccesses AccessesOf(const Op& op) {
    const std::vector<Symbol> args = operations_.has_value()
                                         ? operations_->OrderedArgs(op)
                                         : std::vector<Symbol>(op.args().begin(), op.args().end());
    const auto outputs = args.begin() + static_cast<std::ptrdiff_t>(op.input_args().size());
    OuterAccesses all;
    all.reads.assign(args.begin(), outputs);
    all.writes.assign(outputs, args.end());
    return all;
  }

  std::vector<RankValue> ReadAll(const OuterAccesses& all) const {
    std::vector<RankValue> values;
    for (Symbol name : all.reads) values.push_back(memory_.Read(name));
    for (VarId var : all.reads_of_states) values.push_back(memory_.Read(var));
    return values;
  }

  // If the block reads no variables but those that the op lists, and is linear in the gradients
  // among them, the outputs are gradients. Other variables that the block writes (such as the
  // counter of a loop) have unknown values, as after a loop. Otherwise everything that it writes is
  // unknown.
  void VisitBlockGrad(const Op& op, const SignatureFacts& facts) {
    const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
    const OuterAccesses listed_by_op = AccessesOf(op);
    OuterAccesses all;
    all.reads = listed_by_op.reads;
    std::vector<Symbol>& writes = all.writes;
    bool is_followed = true;
    for (int block : op.SubBlocks()) is_followed = CollectOuter(block, &all) && is_followed;
    const absl::flat_hash_set<Symbol> listed(in.begin(), in.end()), made(out.begin(), out.end());
    is_followed = is_followed && all.reads_of_states.empty() &&
                  std::all_of(all.reads.begin(), all.reads.end(),
                              [&](Symbol name) { return listed.contains(name); }) &&
                  IsLinearInGradients(op);
    writes.erase(std::remove_if(writes.begin(), writes.end(),
                                [&](Symbol name) { return is_followed && made.contains(name); }),
                 writes.end());
    if (!is_followed) absl::c_copy(listed_by_op.writes, std::back_inserter(writes));
    const std::vector<RankValue> values = ReadAll(all);
    if (is_followed) VisitFunction(op, facts);
    WriteOpaque(op, values, all);
  }

  void WriteOpaque(const Op& op, const std::vector<RankValue>& inputs, const OuterAccesses& all) {
    std::vector<VarId> writes;
    for (Symbol name : all.writes) writes.push_back(memory_.Resolve(name));
    writes.insert(writes.end(), all.writes_of_states.begin(), all.writes_of_states.end());
    if (writes.empty()) return;
    RankValue out;
    for (const RankValue& in : inputs) {
      out.placement = JoinPlacements(out.placement, in.placement);
    }
    if (!out.IsEqualOnRanks()) out.placement = Placement::kLocal;
    if (out.IsOfSomeRanks()) out.placement = Placement::kRankSubset;
    std::string identity;
    if (expressions_.AreMade()) identity = absl::StrCat("loop ", operations_->Of(op).value());
    for (size_t i = 0; i < writes.size(); ++i) {
      if (!writes[i].valid()) continue;
      if (expressions_.AreMade()) {
        out = expressions_.Opaque(out, absl::StrCat(identity, " of ", i), inputs, op.type());
      }
      memory_.Write(writes[i], out);
    }
  }

  // Adds the accesses of the ops of a block. Returns false if it skipped blocks, which the walk has
  // already entered.
  bool CollectOuter(int block, OuterAccesses* all) {
    if (std::find(entered_.begin(), entered_.end(), block) != entered_.end()) return false;
    entered_.push_back(block);
    bool has_all = true;
    const auto add = [&](absl::Span<const Symbol> args, std::vector<Symbol>* names,
                         std::vector<VarId>* states) {
      for (Symbol name : args) {
        const VarId var = program_.block(block).Resolve(name);
        if (!var.valid()) continue;
        if (program_.var(var).block() != block && memory_.Resolve(name) == var) {
          names->push_back(name);
        } else if (program_.var(var).persistable()) {
          states->push_back(var);
        }
      }
    };
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      add(op.input_args(), &all->reads, &all->reads_of_states);
      add(op.output_args(), &all->writes, &all->writes_of_states);
      for (int inner : op.SubBlocks()) has_all = CollectOuter(inner, all) && has_all;
    }
    return has_all;
  }

  // --- Functions ---------------------------------------------------------------------------------

  void VisitFunction(const Op& op, const SignatureFacts& facts) {
    const absl::Span<const Symbol> in = op.input_args();
    const absl::Span<const Symbol> out = op.output_args();
    size_t members = 0;
    Symbol buffer;  // the first
    bool all_alike = facts.is_elementwise;
    const auto add = [&](Symbol name, const Group& group) {
      if (members == 0) buffer = name;
      all_alike = all_alike && (name == buffer || memory_.AreLaidOutAlike(name, buffer));
      members = group.size();
    };
    for (Symbol name : in) {
      const Group* group = memory_.GroupOf(name);
      if (group != nullptr) add(name, *group);
    }
    for (Symbol name : out) {
      const Group* group = memory_.GroupOf(name);
      if (group != nullptr) add(name, *group);
      all_alike = all_alike && (group != nullptr || members == 0);
    }
    member_visits_ += static_cast<int64_t>(members);
    if (members > 0 && member_visits_ > kMaxMemberVisits) return VisitUnfollowed(op);
    if (members == 0) {
      ins_.clear();
      const bool takes_gradients = facts.kind == SignatureFacts::Kind::kBlockGrad;
      for (size_t i = 0; i < in.size(); ++i) {
        ins_.push_back(takes_gradients && facts.is_operand[i] ? WrittenBefore(op, in[i])
                                                              : memory_.Read(in[i]));
        // A gradient that is not there is zero.
        const bool is_gradient = facts.algebra == Algebra::kBackward && facts.is_operand[i];
        if (is_gradient && program_.name(in[i]) == kEmptyVarName) ins_.back().is_zero = true;
      }
      if (facts.keeps_outputs) {
        for (Symbol name : out) ins_.push_back(WrittenBefore(op, name));
      }
      const absl::Span<const RankValue> outs = functions_->Of(op, facts, ins_);
      for (size_t i = 0; i < out.size(); ++i) {
        if (!facts.is_left[i]) memory_.Write(memory_.Resolve(out[i]), outs[i]);
      }
    } else if (all_alike) {
      for (size_t m = 0; m < members; ++m) VisitMember(op, facts, m);
    } else {
      VisitWhole(op, facts);
    }
  }

  // The value of an output before the op, or of a gradient: zero unless an earlier op has written
  // it.
  RankValue WrittenBefore(const Op& op, Symbol name) {
    const VarId var = memory_.Resolve(name);
    const bool may_be_zero =
        var.valid() && !program_.var(var).persistable() && !program_.var(var).need_check_feed();
    if (may_be_zero && first_writers_.empty()) {
      first_writers_.resize(program_.var_id_limit());
      std::vector<bool> is_seen(program_.num_blocks(), false);
      FindFirstWriters(0, &is_seen);
    }
    if (!may_be_zero) return memory_.Read(name);
    const OpId writer = first_writers_[var.value()];
    if (writer.valid() && writer != op.id()) return memory_.Read(name);
    return expressions_.ZeroValue();
  }

  void FindFirstWriters(int block, std::vector<bool>* is_seen) {
    (*is_seen)[block] = true;
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      for (Symbol name : op.output_args()) {
        const VarId var = program_.block(block).Resolve(name);
        if (var.valid() && !first_writers_[var.value()].valid()) first_writers_[var.value()] = id;
      }
      for (int inner : op.SubBlocks()) {
        if (!(*is_seen)[inner]) FindFirstWriters(inner, is_seen);
      }
    }
  }

  // Following it would cost too much: the outputs count as rank-local and opaque.
  void VisitUnfollowed(const Op& op) {
    RankValue out;
    if (!options_.IsOneRank()) out.placement = Placement::kLocal;
    for (Symbol name : op.output_args()) {
      out = expressions_.Opaque(out, absl::StrCat("unfollowed ", op.id().value()), {});
      for (VarId member : memory_.MembersOf(name)) memory_.Write(member, out);
    }
  }

  // The op on member m of every buffer.
  void VisitMember(const Op& op, const SignatureFacts& facts, size_t m) {
    ins_.clear();
    for (Symbol name : op.input_args()) {
      const Group* group = memory_.GroupOf(name);
      ins_.push_back(group == nullptr ? memory_.Read(name) : memory_.Read((*group)[m]));
    }
    const absl::Span<const RankValue> outs = functions_->Of(op, facts, ins_);
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) memory_.Write((*memory_.GroupOf(out[i]))[m], outs[i]);
  }

  // The op on whole buffers: its outputs are opaque.
  void VisitWhole(const Op& op, const SignatureFacts& facts) {
    ins_.clear();
    for (Symbol name : op.input_args()) {
      const Group* group = memory_.GroupOf(name);
      if (group == nullptr) {
        ins_.push_back(memory_.Read(name));
        continue;
      }
      RankValue whole;
      std::vector<RankValue> members;
      for (VarId member : *group) {
        members.push_back(memory_.Read(member));
        whole.placement = JoinPlacements(whole.placement, members.back().placement);
        whole.reductions = std::max(whole.reductions, members.back().reductions);
        if (members.back().unscaled_sums != 0) whole.unscaled_sums = members.back().unscaled_sums;
        whole.is_mixed = whole.is_mixed || members.back().is_mixed;
        whole.has_unknown_scale = whole.has_unknown_scale || members.back().has_unknown_scale;
      }
      ins_.push_back(expressions_.Opaque(whole, "fused", members));
    }
    const absl::Span<const RankValue> outs = functions_->Of(op, facts, ins_);
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) {
      const Group* group = memory_.GroupOf(out[i]);
      if (group == nullptr) {
        memory_.Write(memory_.Resolve(out[i]), outs[i]);
        continue;
      }
      for (size_t m = 0; m < group->size(); ++m) {
        memory_.Write((*group)[m],
                      expressions_.Opaque(outs[i], absl::StrCat("member ", m, " of"), {outs[i]}));
      }
    }
  }

  const Program& program_;
  const RankValuesOptions& options_;
  RankExpressions expressions_;
  RankMemory memory_;
  absl::optional<OpOperations> operations_;
  absl::optional<RankFunctions> functions_;

  absl::flat_hash_map<OpId, int> lifts_;                           // BatchLift::power
  std::vector<int> entered_;                                       // blocks, in this walk
  absl::flat_hash_map<int, std::vector<VarId>> written_by_block_;  // outer variables
  std::vector<OpId> first_writers_;  // by VarId; empty: not computed yet
  int64_t member_visits_ = 0;
  RankEvents events_;
  absl::flat_hash_map<int64_t, int64_t> exchanges_;  // by ring: calls, and members of buffers
  std::vector<RankValue> ins_;
};

RankValues RankValues::Of(const Program& program, const RankValuesOptions& options) {
  return RankInterpreter(program, options).Run();
}

StartupValues ReadStartupValues(const Program& startup, RankValuesOptions options) {
  options.start = nullptr;
  options.batch = nullptr;
  options.is_startup = true;
  const RankValues values = RankValues::Of(startup, options);
  StartupValues read;
  for (VarId var : startup.block(0).vars()) {
    if (!startup.var(var).persistable() || !values.IsWritten(var)) continue;
    read.emplace(startup.var(var).name(), values.AtEnd(var));
  }
  return read;
}

}  // namespace weft
