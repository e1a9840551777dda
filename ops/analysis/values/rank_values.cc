#include "ops/analysis/values/rank_values.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "ops/analysis/training/gradient_names.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/flat_buffers.h"
#include "ops/analysis/values/linear_blocks.h"
#include "ops/analysis/values/op_operations.h"
#include "ops/analysis/values/rank_buffers.h"
#include "ops/analysis/values/rank_expressions.h"
#include "ops/analysis/values/rank_functions.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/analysis/values/rank_shares.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/analysis/values/sum_losses.h"
#include "ops/analysis/values/sum_terms.h"
#include "ops/schema/beta_powers.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/feed_ops.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/program.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

// Ops on buffers visit their members; beyond this many visits in a walk they are not followed.
constexpr int64_t kMaxMemberVisits = 1 << 22;

}  // namespace

// The walk, op by op. RankFunctions computes the values of outputs, RankExpressions their
// expressions; RankMemory has the values of variables.
class RankInterpreter final : public RankMemory {
 public:
  RankInterpreter(const ProgramFacts& facts, const RankValuesOptions& options)
      : RankMemory(facts, options.table), options_(options) {
    if (options.table != nullptr) operations_.emplace(program_, options.table);
    functions_.emplace(facts, options, *this, &expressions_,
                       operations_.has_value() ? &*operations_ : nullptr, &events_);
    FindWholeData();
    FindShares();
    rank_buffers_.emplace(program_, options, *this,
                          /*finds_flat=*/options.is_startup || !shares_.empty());
    // Lifts count all ranks.
    if (options.batch == nullptr || !options.group.empty()) return;
    for (const ForwardReduction& one : options.batch->forward_reductions())
      forward_reductions_.emplace(one.op, one.power);
    FindTerms();
  }

  RankValues Run() {
    const bool is_once = options_.is_startup || options_.IsOneRank();
    WalkSteps(is_once);
    const auto is_of_all = [](const RankUpdate& update) {
      return update.IsEqualOnRanks() || (update.param.placement == Placement::kShard &&
                                         update.grad.placement == Placement::kShard);
    };
    const bool takes_for_one_device = !forward_reductions_.empty() || !terms_.empty();
    if (takes_for_one_device && !absl::c_all_of(events_.updates, is_of_all)) {
      // Ranks that update by values of their own compute no value of one device: once more.
      forward_reductions_.clear();
      terms_.clear();
      carried_.clear();
      WalkSteps(is_once);
    }
    RankValues result;
    result.is_written_ = is_held();
    result.events_ = std::move(events_);
    result.sum_gradients_ = functions_->sums().gradients;
    for (uint32_t i = 0; i < program_.var_id_limit(); ++i) {
      result.first_placements_.push_back(FirstPlacement(program_.var(VarId(i))));
    }
    result.end_ = TakeValues();
    result.carried_ = std::move(carried_);
    return result;
  }

 private:
  // --- Steps -------------------------------------------------------------------------------------

  void FindWholeData() {
    if (options_.is_startup) return;
    for (const auto& [name, layout] : options_.setting.feeds) {
      const VarId var = program_.block(0).FindVar(name);
      if (var.valid() && !layout.axis.has_value()) whole_.insert(var);
    }
  }

  void FindShares() {
    if (options_.is_startup || options_.is_one_device) return;
    const auto find = [&](const auto& states) {
      for (const auto& [name, of] : states) {
        const VarId var = program_.block(0).FindVar(name);
        if (var.valid()) shares_.insert(var);
      }
    };
    find(options_.setting.shares);
    find(options_.setting.common);
  }

  ExprId InitialOf(VarId var) const override {
    if (!shares_.empty() && shares_.contains(var)) {
      return InitialOfShare(program_.var(var).name(), options_.setting, expressions_.table());
    }
    return RankMemory::InitialOf(var);
  }

  // Only where the gradients of all losses begin as those of sums, and stay so.
  void FindTerms() {
    const SumLosses& sums = functions_->sums();
    if (options_.IsOneRank() || options_.is_startup || !forward_reductions_.empty()) return;
    if (sums.gradients.empty() || !sums.are_all) return;
    terms_ = FindSumTerms(program_, *options_.batch);
    if (options_.original_ops == nullptr) return;
    // One device divides, too.
    absl::erase_if(terms_,
                   [&](const auto& term) { return (*options_.original_ops)[term.second.value()]; });
  }

  // Divides a mean by the number of ranks that add it up: what they have together is the mean.
  bool MakesTerm(const Op& op) const {
    if (terms_.empty() || op.block() != 0 || op.output_args().size() != 1) return false;
    const auto term = terms_.find(Resolve(op.output_args()[0]));
    return term != terms_.end() && term->second == op.id();
  }

  // The gradient of a sum counts as the n-th part of it, and that of a mean as it is. So the
  // gradient of a term, taken for that of the mean, is n times as large, until an op divides it as
  // the mean was.
  void CountGradientsOfTerms(const Op& op, const SignatureFacts& facts) {
    if (terms_.empty() || facts.algebra != Algebra::kBackward) return;
    for (size_t i = 0; i < op.output_args().size(); ++i) {
      const int forward = facts.forward_input[i];
      const VarId var = Resolve(op.output_args()[i]);
      if (forward < 0 || !var.valid() || facts.is_left[i]) continue;
      if (!terms_.contains(Resolve(op.input_args()[forward]))) continue;
      RankValue value = Read(var);
      value.factor *= options_.RankFactor();
      value.ChangeUnscaledSums(1);
      Write(var, value);
    }
  }

  Placement FirstPlacement(const Var& var) const {
    if (options_.IsOneRank() || (!whole_.empty() && whole_.contains(var.id()))) {
      return Placement::kReplicated;
    }
    // A variable that is read before any op writes it is data, marked as such or not.
    const bool is_data = !OutlivesStep(var.id()) && !options_.is_startup;
    if (is_data || var.need_check_feed()) return Placement::kLocal;
    const std::set<std::string>& distributed = options_.setting.distributed_params;
    const int type = var.type();
    if (type == pb::VarType::FEED_MINIBATCH || type == pb::VarType::READER ||
        (!distributed.empty() && distributed.count(std::string(var.name())) > 0)) {
      return Placement::kLocal;
    }
    if (!var.persistable()) return Placement::kReplicated;
    const bool is_share =
        !shares_.empty() && options_.setting.shares.count(std::string(var.name())) > 0;
    if (options_.start == nullptr) return is_share ? Placement::kShard : Placement::kReplicated;
    const auto found = options_.start->find(var.name());
    // A part of zeros.
    if (is_share && found != options_.start->end() && found->second.is_zero) {
      return Placement::kShard;
    }
    const bool differs = found != options_.start->end() && !found->second.IsEqualOnRanks();
    return differs ? found->second.placement : Placement::kReplicated;
  }

  RankValue FirstValue(const Var& var) const {
    RankValue value;
    const bool has_expr = options_.table != nullptr && options_.first_expression == 0 &&
                          (var.persistable() || var.need_check_feed());
    value.placement = FirstPlacement(var);
    if (!has_expr) return value;
    const bool is_share = !shares_.empty() && shares_.contains(var.id());
    value.expr = is_share ? InitialOfShare(var.name(), options_.setting, options_.table)
                          : options_.table->Initial(var.name());
    return value;
  }

  void BeginStep(std::vector<RankValue>* values) override {
    expressions_.StartWalk(/*makes_them=*/options_.first_expression == 0);
    functions_->StartWalk();
    member_visits_ = 0;
    exchanges_.clear();
    gathered_.clear();
    events_ = RankEvents();
    values->clear();
    values->reserve(program_.var_id_limit());
    for (uint32_t i = 0; i < program_.var_id_limit(); ++i) {
      values->push_back(FirstValue(program_.var(VarId(i))));
    }
    for (const auto& [var, value] : carried_) (*values)[var.value()] = value;
  }

  bool CarryOver(Widening widening) override {
    bool changed = false;
    for (size_t i = 0; i < values().size(); ++i) {
      const VarId id(static_cast<uint32_t>(i));
      const Var var = program_.var(id);
      if (!IsHeld(id) || !OutlivesStep(id)) continue;
      const auto found = carried_.find(id);
      RankValue start = found == carried_.end() ? FirstValue(var) : found->second;
      RankValue end = values()[i];
      const bool is_widest = start.placement == Placement::kLocal && !start.is_gradient;
      if (widening == Widening::kAll && !is_widest) {
        end = RankValue();
        end.placement = Placement::kLocal;
      } else if (end.IsEqualOnRanks()) {
        const bool was_of_one_device = start.placement == Placement::kReplicated;
        if (!end.IsOfSomeRanks() || !was_of_one_device) continue;
      }
      // A change of a parameter, declared or not, is not an accumulated gradient.
      if (var.is_parameter() || facts_.Get(FindDifferentiated).contains(id)) {
        end.is_gradient = end.is_summed = false;
      }
      const bool was_own = start.placement == end.placement;
      if (was_own && start.is_gradient <= end.is_gradient && start.is_summed <= end.is_summed) {
        continue;
      }
      if (widening == Widening::kChanged) {
        if (is_widest) continue;
        end = RankValue();
        end.placement = Placement::kLocal;
      }
      const RankValue before = start;
      start = end;
      start.is_gradient = end.is_gradient && (!was_own || before.is_gradient);
      start.is_summed = end.is_summed && (!was_own || before.is_summed);
      start.is_mixed = start.averaged_across_ranks = false;
      start.drawn_by = OpId();
      start.terms = 0;
      start.reductions = 0;
      start.expr = before.expr;
      if (!start.is_gradient) {
        start.factor = 1;
        start.unscaled_sums = 0;
      } else if (end.local_factor != 0) {
        // Of what the step adds, the part that comes from ranks: one device has the other factors,
        // too.
        start.factor = std::pow(options_.RankFactor(), start.unscaled_sums);
      }
      start.local_factor = 0;
      carried_[id] = start;
      changed = true;
    }
    return changed;
  }

  void WalkStep() override {
    const absl::Span<const OpId> ops = program_.block(0).ops();
    if (options_.table == nullptr || options_.first_expression == 0) return Walk(0);
    const size_t first = std::min(options_.first_expression, ops.size());
    if (!options_.is_one_device) WalkOps(ops.first(first));
    expressions_.Begin();
    ForgetExpressions(options_.RankFactor());
    WalkOps(ops.subspan(first));
  }

  // --- Ops ---------------------------------------------------------------------------------------

  // Outputs that are no inputs have unknown values.
  void VisitIgnored(const Op& op) override {
    const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
    if (IsFetch(op.type()) && op.block() == 0) {
      for (Symbol name : in) {
        const VarId var = Resolve(name);
        if (!var.valid()) continue;
        events_.fetches.push_back({op.id(), var, Read(var), expressions_.AreMade()});
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const bool is_at_its_place = i < in.size() && in[i] == out[i];
      if (is_at_its_place || std::find(in.begin(), in.end(), out[i]) != in.end()) continue;
      const VarId var = Resolve(out[i]);
      if (var.valid() && program_.var(var).type() == pb::VarType::LOD_TENSOR) WriteUnknown(op, var);
    }
  }

  void WriteUnknown(const Op& op, VarId var) {
    RankValue unknown;
    if (!options_.IsOneRank()) unknown.placement = Placement::kLocal;
    unknown.has_unknown_scale = true;
    Write(var,
          expressions_.Opaque(unknown, absl::StrCat("unknown ", op.id().value()), {}, "unknown"));
  }

  void VisitFeed(const Op& op) override {
    for (size_t i = 0; i < op.output_args().size(); ++i) {
      const Symbol name = op.output_args()[i];
      const VarId var = Resolve(name);
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
      Write(var, value);
    }
  }

  // --- Buffers of several variables --------------------------------------------------------------

  void VisitPart(const Op& op, const Storage::Buffer& buffer, VarId part, Symbol source) override {
    if (source.valid()) {
      Write(part, Read(source));
    } else if (buffer.constant.has_value()) {
      RankValue value;
      const double constant = *buffer.constant;
      value.is_zero = constant == 0;
      if (expressions_.AreMade()) {
        value.expr = constant == 0 ? expressions_.table()->Zero()
                                   : expressions_.Named(absl::StrCat("constant ", constant),
                                                        absl::StrCat(constant));
      }
      Write(part, value);
    } else if (IsHeld(part) || program_.var(part).persistable()) {
      // The variable moves to the buffer, without its value.
      WriteUnknown(op, part);
    }
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

  // Under a schedule with groups, these take their means one after the other, in place: once all
  // have, the value is the mean over the group of each rank. In groups of whatever ranks, it is
  // unknown.
  bool AveragesGroups(const Op& op, const CollectiveOp& collective, VarId var) {
    const absl::optional<AveragingSchedule>& schedule = options_.setting.averaging;
    if (!schedule.has_value() || !schedule->HasGroups()) return false;
    const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    const RankValue value = Read(var);
    if (!ranks.ok() || ranks->empty() || !options_.group.empty() ||
        !options_.setting.nranks.has_value() || collective.kind != CollectiveKind::kAllReduce ||
        collective.reduction != Reduction::kAvg ||
        value.placement != RankValue::Placement::kLocal || value.is_gradient ||
        program_.var(var).type() != pb::VarType::LOD_TENSOR) {
      return false;
    }
    const int size = static_cast<int>(ranks->size());
    const int nranks = *options_.setting.nranks, first = ranks->front();
    if (nranks % size != 0 || first % size != 0 || ranks->back() != first + size - 1) return false;
    // The programs of other ranks say what their groups do.
    const bool is_one = options_.setting.rank.has_value();
    if (is_one && !absl::c_binary_search(*ranks, *options_.setting.rank)) return true;
    GroupMeans& means = group_means_[var];
    const bool goes_on = means.size == size && value.factor == 1 && means.expr == value.expr &&
                         means.groups.count(first) == 0;
    if (!goes_on) means = {value, size, {}, ExprId()};
    means.groups.insert(first);
    RankValue mean = value;
    if (!is_one && static_cast<int>(means.groups.size()) < nranks / size) {
      mean = expressions_.Opaque(mean, absl::StrCat("mean of some groups ", op.id().value()),
                                 {value}, "mean of some groups");
      means.expr = mean.expr;
    } else {
      if (expressions_.AreMade()) {
        mean.expr = expressions_.table()->MeanOverGroups(means.before.expr, size);
        mean.factor = means.before.factor;
      }
      group_means_.erase(var);
    }
    Write(var, mean);
    return true;
  }

  void VisitForeignCollective(const Op& op, const CollectiveOp& collective) {
    const absl::Span<const Symbol> in = collective.Inputs(op), out = collective.Outputs(op);
    if (in.size() == 1 && in == out) {
      const VarId var = Resolve(in[0]);
      const absl::Span<const VarId> parts = PartsOf(var);
      const auto averages = [&](VarId part) { return AveragesGroups(op, collective, part); };
      if (parts.empty() ? var.valid() && averages(var) : absl::c_all_of(parts, averages)) return;
    }
    for (Symbol name : op.output_args()) {
      RankValue out;
      out.placement = Placement::kLocal;
      out.has_unknown_scale = true;
      out.first_nonlinear_op = op.id();
      out =
          expressions_.Opaque(out, absl::StrCat("other ring ", op.id().value()), {}, "other ring");
      WriteAll(Resolve(name), out);
    }
  }

  void VisitCollective(const Op& op, const CollectiveOp& collective) override {
    if (options_.is_one_device) return VisitFunction(op, FactsOf(op));
    if (!IsOfGroup(op)) return VisitForeignCollective(op, collective);
    const absl::Span<const Symbol> in = collective.Inputs(op), out = collective.Outputs(op);
    for (size_t i = 0; i < std::min(in.size(), out.size()); ++i) {
      const VarId from = Resolve(in[i]), to = Resolve(out[i]);
      if (PartsOf(from).empty() && PartsOf(to).empty()) {
        ExchangeOne(op, collective, from, to);
      } else if (from == to) {
        for (VarId part : PartsOf(from)) Exchange(op, collective, part, part);
      } else if (ScattersBuffer(collective, from, to)) {
        Scatter(op, collective, PartsOf(from), to);
      } else if (GathersBuffer(collective, from, to)) {
        const absl::Span<const VarId> parts = PartsOf(to);
        const std::vector<RankValue> values = Gathered(op, collective, from, parts.size());
        for (size_t part = 0; part < parts.size(); ++part) Write(parts[part], values[part]);
      } else {
        // From one buffer into another: not followed.
        RankValue whole;
        whole.placement = Placement::kLocal;
        WriteAll(
            to, expressions_.Opaque(whole, absl::StrCat("fused collective ", op.id().value()), {}));
      }
    }
  }

  // Between variables that are no fused buffers.
  void ExchangeOne(const Op& op, const CollectiveOp& collective, VarId from, VarId to) {
    const FlatBuffer* const made = from.valid() ? rank_buffers_->flat().MadeOf(from) : nullptr;
    const absl::Span<const FlatBuffer> taken =
        to.valid() ? rank_buffers_->flat().TakenApart(to) : absl::Span<const FlatBuffer>();
    if (made != nullptr && !rank_buffers_->HasOtherNames(from, *made)) {
      const std::vector<VarId> tensors = rank_buffers_->ScatteredIn(*made);
      if (!tensors.empty() &&
          rank_buffers_->DividesBuffer(collective, rank_buffers_->LayoutOf(tensors), to)) {
        return Scatter(op, collective, tensors, to);
      }
    }
    bool are_gathered = false;
    for (const FlatBuffer& buffer : taken) {
      if (rank_buffers_->HasOtherNames(to, buffer)) continue;
      const RankBuffers::TensorsOfParts tensors = rank_buffers_->GatheredIn(buffer, from);
      if (tensors.empty() ||
          !GathersShares(collective, from,
                         rank_buffers_->LayoutOf(RankBuffers::FirstOfEach(tensors)))) {
        continue;
      }
      const std::vector<RankValue> values = Gathered(op, collective, from, tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        for (VarId tensor : tensors[i]) gathered_.emplace(tensor, values[i]);
      }
      are_gathered = true;
    }
    if (!are_gathered) return Exchange(op, collective, from, to);
    Write(to, functions_->AfterCollective(op, collective, Read(from)));
  }

  bool ScattersBuffer(const CollectiveOp& collective, VarId from, VarId to) const {
    return !PartsOf(from).empty() && rank_buffers_->IsDense(from) &&
           rank_buffers_->DividesBuffer(collective, rank_buffers_->LayoutOf(PartsOf(from)), to);
  }

  void Scatter(const Op& op, const CollectiveOp& collective, absl::Span<const VarId> tensors,
               VarId to) {
    std::vector<RankValue> values;
    for (VarId tensor : tensors) {
      const RankValue value = Read(tensor);
      events_.exchanges.push_back({op.id(), value});
      values.push_back(collective.kind == CollectiveKind::kAllToAll
                           ? functions_->PartsOfRanks(value)
                           : functions_->AfterCollective(op, collective, value));
    }
    Write(to, InOne(rank_buffers_->LayoutOf(tensors), values, expressions_.table()));
  }

  // Whether shares of tensors of these dims are put together.
  bool GathersShares(const CollectiveOp& collective, VarId from,
                     const ExpressionTable::Layout& layout) const {
    if (!from.valid() || !PartsOf(from).empty()) return false;
    const RankValue value = Read(from);
    const bool is_share = value.placement == Placement::kShard || options_.IsOneRank();
    if (collective.kind != CollectiveKind::kAllGather || !is_share) return false;
    if (!rank_buffers_->AreDivided(layout, from, 1)) return false;
    if (value.is_zero || !expressions_.AreMade()) return true;
    const absl::Span<const ExprId> values = expressions_.table()->ValuesOf(value.expr);
    return !values.empty() && expressions_.table()->Several(layout, values) == value.expr;
  }

  bool GathersBuffer(const CollectiveOp& collective, VarId from, VarId to) const {
    return !PartsOf(to).empty() && rank_buffers_->IsDense(to) &&
           GathersShares(collective, from, rank_buffers_->LayoutOf(PartsOf(to)));
  }

  // The tensors of which `from` has parts.
  std::vector<RankValue> Gathered(const Op& op, const CollectiveOp& collective, VarId from,
                                  size_t count) {
    const RankValue several = Read(from);
    events_.exchanges.push_back({op.id(), several});
    std::vector<RankValue> values;
    for (size_t i = 0; i < count; ++i) {
      const RankValue value = ValueOf(several, i, expressions_.table());
      values.push_back(functions_->AfterCollective(op, collective, value));
    }
    return values;
  }

  void Exchange(const Op& op, const CollectiveOp& collective, VarId in, VarId out) {
    if (!in.valid()) return;
    const RankValue value = Read(in);
    if (forward_reductions_.contains(op.id()) && (!value.is_gradient || IsBackward(op))) {
      RankValue reduced = AfterForwardReduction(op, value);
      reduced.has_samples_of_ranks = collective.kind == CollectiveKind::kAllGather;
      return Write(out, reduced);
    }
    events_.exchanges.push_back({op.id(), value});
    RankValue result = functions_->AfterCollective(op, collective, value);
    if (IsOfAnotherProgram(collective, result) && expressions_.AreMade()) {
      result.expr = ValueOfRank(result.rank, program_.var(in).name(), expressions_.table());
      result.factor = 1;
      result.terms = 0;
      result.is_zero = false;
    }
    // Rows of one index on several ranks become their sum.
    result.has_merged_rows = collective.kind == CollectiveKind::kAllReduce &&
                             program_.var(in).type() == pb::VarType::SELECTED_ROWS;
    result.rows =
        result.has_merged_rows ? ExprId() : functions_->RowsMadeOf("rows of ranks", {value});
    Write(out, options_.names_exchanges ? Named(op, collective, in, result) : result);
  }

  // Whether ranks begin with what the program of another rank says.
  bool IsOfAnotherProgram(const CollectiveOp& collective, const RankValue& given) const {
    return options_.is_startup && collective.kind == CollectiveKind::kBroadcast &&
           given.placement == Placement::kRankSubset && given.rank >= 0 &&
           options_.setting.rank.value_or(given.rank) != given.rank;
  }

  // The same on all ranks by the number of the call.
  RankValue Named(const Op& op, const CollectiveOp& collective, VarId in, RankValue result) {
    const bool gives_to_all = collective.kind == CollectiveKind::kAllReduce ||
                              collective.kind == CollectiveKind::kAllGather ||
                              collective.kind == CollectiveKind::kBroadcast;
    if (!gives_to_all || !expressions_.AreMade()) return result;
    const int64_t ring = op.IntAttr("ring_id").value_or(0);
    const std::string call = absl::StrCat("call ", exchanges_[ring]++, " on ring ", ring);
    result = RankValue();
    result.expr = expressions_.Named(absl::StrCat(call, " of ", program_.var(in).name()), call);
    return result;
  }

  // A division by the number of ranks.
  void VisitForwardReduction(const Op& op) {
    Write(Resolve(op.output_args()[0]), AfterForwardReduction(op, Read(op.input_args()[0])));
  }

  RankValue AfterForwardReduction(const Op& op, RankValue value) const {
    const int power = forward_reductions_.at(op.id());
    value.placement = Placement::kReplicated;
    value.factor *= std::pow(options_.RankFactor(), power);
    value.ChangeUnscaledSums(power);
    return value;
  }

  // --- Blocks ------------------------------------------------------------------------------------

  void VisitBranch(const Op& op) override {
    const RankValue condition = ConditionOf(op);
    const size_t num_around = conditions_inside_.size();
    if (expressions_.AreMade()) conditions_inside_.push_back(condition);
    for (int block : op.SubBlocks()) {
      const auto leave = [&](const LogEntry& entry, const RankValue& inside, bool is_followed) {
        if (!is_followed) return WriteUnknown(op, entry.var);
        LeaveBranch(condition, entry, inside);
      };
      const bool is_followed = WalkBlock(block, /*max_visits=*/1, leave);
      if (!is_followed) events_.conditions.push_back({op.id(), Symbol(), RankValue()});
    }
    conditions_inside_.resize(num_around);
  }

  // One bool, or whether all of several tensors are non-empty.
  RankValue ConditionOf(const Op& op) {
    std::vector<RankValue> all;
    RankValue joined;
    for (Symbol name : op.Input("Cond")) {
      all.push_back(Read(name));
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

  // A variable keeps its value, or has that from the block. One without an earlier value is read
  // only inside, or if the block has run.
  void LeaveBranch(const RankValue& condition, const LogEntry& entry, const RankValue& inside) {
    const bool was_held =
        entry.is_held || OutlivesStep(entry.var) || program_.var(entry.var).need_check_feed();
    const bool began_later = options_.first_expression > 0 && expressions_.AreMade();
    if (!was_held && !began_later) return Write(entry.var, inside);
    RankValue value = functions_->Select(condition, inside, HeldBefore(entry));
    if (!was_held) {
      // The walk over the program of one device does not know what ops before the first expression
      // have written: expressions are as there, all else is as inside.
      const RankValue selected = value;
      value = inside;
      value.expr = selected.expr;
      value.factor = selected.factor;
      value.local_factor = selected.local_factor;
      value.terms = 0;
      value.is_zero = selected.is_zero;
    }
    Write(entry.var, value);
  }

  // What the ops of a block access and outlives a run of it: variables of outer blocks, by name,
  // and persistable ones of the block itself.
  struct OuterAccesses {
    std::vector<Symbol> reads, writes;
    std::vector<VarId> reads_of_states, writes_of_states;
  };

  // A loop is a function of all that the op or its block reads, and of what it writes: it may run
  // zero times.
  void VisitLoop(const Op& op, const SignatureFacts& facts) override {
    events_.conditions.push_back({op.id(), Symbol(), RankValue()});
    OuterAccesses all = AccessesOf(op);
    for (int block : op.SubBlocks()) CollectOuter(block, &all);
    const auto has_value = [&](VarId var) {
      return var.valid() && (IsHeld(var) || OutlivesStep(var));
    };
    absl::c_copy_if(all.writes, std::back_inserter(all.reads),
                    [&](Symbol name) { return has_value(Resolve(name)); });
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
    for (Symbol name : all.reads) values.push_back(Read(name));
    for (VarId var : all.reads_of_states) values.push_back(Read(var));
    return values;
  }

  // If the block reads no variables but those that the op lists, and is linear in the gradients
  // among them, the outputs are gradients. Other variables that the block writes have unknown
  // values, as after a loop; what it makes of no gradients (such as the counter of a loop) does not
  // depend on these. Otherwise everything that it writes is unknown.
  void VisitBlockGrad(const Op& op, const SignatureFacts& facts) override {
    events_.conditions.push_back({op.id(), Symbol(), RankValue()});
    const absl::Span<const Symbol> in = op.input_args(), out = op.output_args();
    const OuterAccesses listed_by_op = AccessesOf(op);
    OuterAccesses all;
    all.reads = listed_by_op.reads;
    std::vector<Symbol>& writes = all.writes;
    bool is_followed = true;
    for (int block : op.SubBlocks()) is_followed = CollectOuter(block, &all) && is_followed;
    const absl::flat_hash_set<Symbol> listed(in.begin(), in.end()), made(out.begin(), out.end());
    const absl::optional<absl::flat_hash_set<Symbol>> gradients =
        FollowGradients(op, facts_.Get<SignatureTable>());
    is_followed = is_followed && all.reads_of_states.empty() &&
                  std::all_of(all.reads.begin(), all.reads.end(),
                              [&](Symbol name) { return listed.contains(name); }) &&
                  gradients.has_value();
    writes.erase(std::remove_if(writes.begin(), writes.end(),
                                [&](Symbol name) { return is_followed && made.contains(name); }),
                 writes.end());
    if (!is_followed) absl::c_copy(listed_by_op.writes, std::back_inserter(writes));
    OuterAccesses apart;
    if (is_followed) {
      const auto is_gradient = [&](Symbol name) { return gradients->contains(name); };
      absl::c_copy_if(all.reads, std::back_inserter(apart.reads), std::not_fn(is_gradient));
      const auto end = absl::c_stable_partition(writes, is_gradient);
      apart.writes.assign(end, writes.end());
      writes.erase(end, writes.end());
    }
    const std::vector<RankValue> values = ReadAll(all), values_apart = ReadAll(apart);
    if (is_followed) VisitFunction(op, facts);
    WriteOpaque(op, values, all);
    WriteOpaque(op, values_apart, apart, writes.size());
  }

  // The outputs from number `first` on.
  void WriteOpaque(const Op& op, const std::vector<RankValue>& inputs, const OuterAccesses& all,
                   size_t first = 0) {
    std::vector<VarId> writes;
    for (Symbol name : all.writes) writes.push_back(Resolve(name));
    writes.insert(writes.end(), all.writes_of_states.begin(), all.writes_of_states.end());
    if (writes.empty()) return;
    RankValue out;
    for (const RankValue& in : inputs) out.placement = JoinPlacements(out.placement, in.placement);
    if (!out.IsEqualOnRanks()) out.placement = Placement::kLocal;
    if (out.IsOfSomeRanks()) out.placement = Placement::kRankSubset;
    std::string identity;
    if (expressions_.AreMade()) identity = absl::StrCat("loop ", operations_->Of(op).value());
    for (size_t i = 0; i < writes.size(); ++i) {
      if (!writes[i].valid()) continue;
      if (expressions_.AreMade()) {
        out =
            expressions_.Opaque(out, absl::StrCat(identity, " of ", first + i), inputs, op.type());
      }
      Write(writes[i], out);
    }
  }

  // Adds the accesses of the ops of a block. Returns false if it skipped blocks, which the walk has
  // already entered.
  bool CollectOuter(int block, OuterAccesses* all) {
    if (CountVisit(block) > 0) return false;
    bool has_all = true;
    const auto add = [&](absl::Span<const Symbol> args, std::vector<Symbol>* names,
                         std::vector<VarId>* states) {
      for (Symbol name : args) {
        const VarId var = program_.block(block).Resolve(name);
        if (!var.valid()) continue;
        if (program_.var(var).block() != block && Resolve(name) == var) {
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

  void VisitFunction(const Op& op, const SignatureFacts& facts) override {
    if (forward_reductions_.contains(op.id())) return VisitForwardReduction(op);
    if (MakesTerm(op)) return Write(Resolve(op.output_args()[0]), Read(op.input_args()[0]));
    const absl::Span<const Symbol> in = op.input_args();
    const absl::Span<const Symbol> out = op.output_args();
    size_t members = 0;
    VarId buffer;  // the first
    bool all_alike = facts.is_elementwise;
    // Whether the variable is a buffer.
    const auto add = [&](VarId var) {
      if (PartsOf(var).empty()) return false;
      if (members == 0) buffer = var;
      all_alike = all_alike && AreLaidOutAlike(var, buffer);
      members = PartsOf(var).size();
      return true;
    };
    for (Symbol name : in) add(Resolve(name));
    for (Symbol name : out) all_alike = (add(Resolve(name)) || members == 0) && all_alike;
    member_visits_ += static_cast<int64_t>(members);
    if (members > 0 && member_visits_ > kMaxMemberVisits) return VisitUnfollowed(op);
    if (members == 0) {
      ins_.clear();
      const bool takes_gradients = facts.kind == SignatureFacts::Kind::kBlockGrad;
      for (size_t i = 0; i < in.size(); ++i) {
        ins_.push_back(takes_gradients && facts.is_operand[i] ? WrittenBefore(in[i]) : Read(in[i]));
        // A gradient that is not there is zero.
        const bool is_gradient = facts.algebra == Algebra::kBackward && facts.is_operand[i];
        if (is_gradient && !Resolve(in[i]).valid()) ins_.back().is_zero = true;
      }
      if (facts.keeps_outputs) {
        for (Symbol name : out) ins_.push_back(WrittenBefore(name));
      }
      const absl::Span<const RankValue> outs = Outputs(op, facts);
      for (size_t i = 0; i < out.size(); ++i) {
        if (facts.is_left[i] || LeavesBetaPower(op, out[i])) continue;
        const VarId to = Resolve(out[i]);
        const auto gathered = gathered_.find(to);
        Write(to, gathered == gathered_.end() ? outs[i] : gathered->second);
      }
      CountGradientsOfTerms(op, facts);
    } else if (all_alike) {
      for (size_t m = 0; m < members; ++m) VisitMember(op, facts, m);
    } else {
      VisitWhole(op, facts);
    }
  }

  // For ins_: inside a branch, what they are where it runs.
  absl::Span<const RankValue> Outputs(const Op& op, const SignatureFacts& facts) {
    for (const RankValue& condition : conditions_inside_) {
      for (RankValue& in : ins_) expressions_.Choose(condition, /*holds=*/true, &in);
    }
    return functions_->Of(op, facts, ins_);
  }

  // The value of an output before the op, or of a gradient: zero unless an earlier op has written
  // it, which may be one that the walk skips.
  RankValue WrittenBefore(Symbol name) const {
    const VarId var = Resolve(name);
    const bool skips_ops = options_.is_one_device && options_.first_expression > 0;
    const bool is_zero = var.valid() && !IsHeld(var) && !OutlivesStep(var) &&
                         !program_.var(var).need_check_feed() && !skips_ops;
    return is_zero ? expressions_.ZeroValue() : Read(name);
  }

  // Following it would cost too much: the outputs count as rank-local and opaque.
  void VisitUnfollowed(const Op& op) {
    RankValue out;
    if (!options_.IsOneRank()) out.placement = Placement::kLocal;
    for (Symbol name : op.output_args()) {
      out = expressions_.Opaque(out, absl::StrCat("unfollowed ", op.id().value()), {});
      WriteAll(Resolve(name), out);
    }
  }

  // The op on member m of every buffer.
  void VisitMember(const Op& op, const SignatureFacts& facts, size_t m) {
    ins_.clear();
    for (Symbol name : op.input_args()) {
      const absl::Span<const VarId> parts = PartsOf(Resolve(name));
      ins_.push_back(parts.empty() ? Read(name) : Read(parts[m]));
    }
    const absl::Span<const RankValue> outs = Outputs(op, facts);
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) Write(PartsOf(Resolve(out[i]))[m], outs[i]);
  }

  // The op on whole buffers: its outputs are opaque.
  void VisitWhole(const Op& op, const SignatureFacts& facts) {
    ins_.clear();
    for (Symbol name : op.input_args()) {
      const absl::Span<const VarId> parts = PartsOf(Resolve(name));
      if (parts.empty()) {
        ins_.push_back(Read(name));
        continue;
      }
      RankValue whole;
      std::vector<RankValue> members;
      for (VarId member : parts) {
        members.push_back(Read(member));
        whole.placement = JoinPlacements(whole.placement, members.back().placement);
        whole.reductions = std::max(whole.reductions, members.back().reductions);
        if (members.back().unscaled_sums != 0) whole.unscaled_sums = members.back().unscaled_sums;
        whole.is_mixed = whole.is_mixed || members.back().is_mixed;
        whole.has_unknown_scale = whole.has_unknown_scale || members.back().has_unknown_scale;
      }
      ins_.push_back(expressions_.Opaque(whole, "fused", members));
    }
    const absl::Span<const RankValue> outs = Outputs(op, facts);
    const absl::Span<const Symbol> out = op.output_args();
    for (size_t i = 0; i < out.size(); ++i) {
      const VarId var = Resolve(out[i]);
      const absl::Span<const VarId> parts = PartsOf(var);
      if (parts.empty()) Write(var, outs[i]);
      for (size_t m = 0; m < parts.size(); ++m) {
        Write(parts[m], expressions_.Opaque(outs[i], absl::StrCat("member ", m, " of"), {outs[i]}));
      }
    }
  }

  const RankValuesOptions& options_;
  absl::optional<OpOperations> operations_;
  absl::optional<RankFunctions> functions_;

  absl::flat_hash_map<OpId, int> forward_reductions_;  // ForwardReduction::power
  absl::flat_hash_map<VarId, OpId> terms_;             // FindSumTerms
  absl::optional<RankBuffers> rank_buffers_;
  // In this step: what the op that takes it out of a gathered buffer will write.
  absl::flat_hash_map<VarId, RankValue> gathered_;
  // Of variables of which some groups of ranks have taken the mean.
  struct GroupMeans {
    RankValue before;
    int size = 0;
    std::set<int> groups;  // by their first ranks
    ExprId expr;           // of the variable, since
  };
  absl::flat_hash_map<VarId, GroupMeans> group_means_;
  absl::flat_hash_set<VarId> shares_;  // Setting::shares and Setting::common
  absl::flat_hash_set<VarId> whole_;   // data that all ranks get the whole of
  // Of variables that earlier steps changed. Sparse, because few change and values are large.
  absl::flat_hash_map<VarId, RankValue> carried_;
  int64_t member_visits_ = 0;
  RankEvents events_;
  absl::flat_hash_map<int64_t, int64_t> exchanges_;  // by ring: calls, and members of buffers
  std::vector<RankValue> ins_;
  std::vector<RankValue> conditions_inside_;  // of the branches around the op
};

RankValues RankValues::Of(const ProgramFacts& program, const RankValuesOptions& options) {
  return RankInterpreter(program, options).Run();
}

StartupValues ReadStartupValues(const ProgramFacts& startup, RankValuesOptions options) {
  options.start = nullptr;
  options.batch = nullptr;
  options.is_startup = true;
  const RankValues values = RankValues::Of(startup, options);
  StartupValues read;
  const Program& program = startup.program();
  for (VarId var : program.block(0).vars()) {
    if (!program.var(var).persistable() || !values.IsWritten(var)) continue;
    read.emplace(program.var(var).name(), values.AtEnd(var));
  }
  return read;
}

}  // namespace weft
