#include "transpiler/verifier/batch/batch.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/training/lost_gradients.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/analysis/values/rank_values.h"
#include "ops/analysis/values/sum_losses.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_kinds.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/verifier/batch/loss_advice.h"

namespace weft {
namespace {

// " of a (a partial sum), b (sharded along axis 0)": the inputs of an op that are not what one
// device has, as the op finds them; as the step leaves them where that is not known.
std::string InputsOf(const Program& main, const BatchFlow& flow, const Op& op) {
  const auto lost = absl::c_find_if(flow.lost_relations(),
                                    [&](const LostRelation& other) { return other.op == op.id(); });
  std::vector<std::string> inputs;
  absl::flat_hash_set<Symbol> seen;
  for (size_t i = 0; i < op.input_args().size(); ++i) {
    const Symbol name = op.input_args()[i];
    const VarId var = main.block(op.block()).Resolve(name);
    if (!var.valid()) continue;
    const BatchRelation relation =
        lost != flow.lost_relations().end() ? lost->inputs[i] : flow.AtEnd(var).relation;
    if (relation.IsSame() || !seen.insert(name).second) continue;
    inputs.push_back(absl::StrCat(main.name(name), " (", ToString(relation), ")"));
  }
  return inputs.empty() ? "" : absl::StrCat(" of ", absl::StrJoin(inputs, ", "));
}

// The op that made a value unrelated, and from what.
std::string Because(const Program& main, const BatchFlow& flow, OpId cause) {
  if (!cause.valid()) return "";
  const Op op = main.op(cause);
  const absl::string_view why = WhyUnrelated(op);
  return absl::StrCat(": ", op.DebugName(), " makes it", InputsOf(main, flow, op),
                      why.empty() ? "" : ", ", why);
}

// The output that an op is there for: that of slot Out or Y, else the first. None if it has none.
absl::optional<Symbol> MainOutput(const Op& op) {
  for (const char* slot : {"Out", "Y"}) {
    if (!op.Output(slot).empty()) return op.Output(slot)[0];
  }
  if (op.output_args().empty()) return absl::nullopt;
  return op.output_args()[0];
}

class BatchChecker {
 public:
  // `fetched`: after the step.
  BatchChecker(const ProgramFacts& facts, const BatchFlow& flow,
               const std::vector<std::string>& fetched, WhatIfFlows* what_if, ProgramRef ref,
               Findings* findings)
      : facts_(facts),
        main_(facts.program()),
        flow_(flow),
        fetched_(fetched),
        what_if_(*what_if),
        report_(ref, findings),
        losses_(facts.Get(FindLosses)) {}

  void CheckLosses() {
    for (VarId var : Losses()) {
      const Symbol loss = main_.var(var).name_symbol();
      const BatchValue& value = flow_.AtEnd(var);
      if (IsMeanOrSum(value.relation)) continue;
      if (value.relation.IsReplicated() || value.relation.IsPartial()) {
        ReportMultiple(loss, value.relation.power);
        continue;
      }
      const std::vector<VarId> states = StatesBefore(value.cause);
      for (VarId state : states) followers_.emplace(state, loss);
      if (!states.empty()) continue;
      if (IsAlreadyReported(value.cause, loss)) continue;
      reported_.insert(value.cause);
      report_.Add(
          "W701", value.cause, main_.name(loss),
          absl::StrCat("loss ", main_.name(loss), " is no mean and no sum over the batch",
                       Because(main_, flow_, value.cause), AdviceForLoss(var, value.cause)));
    }
  }

  // A loss that ranks reduce otherwise than it asks for: a sum over the ranks of a mean over the
  // batch, or a mean of sums.
  void ReportMultiple(Symbol loss, int power) {
    absl::flat_hash_set<OpId> reductions;
    for (const ForwardReduction& one : flow_.forward_reductions()) reductions.insert(one.op);
    OpId reduction;  // the last one before the loss is there
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (reductions.contains(id)) reduction = id;
      if (reduction.valid() && absl::c_linear_search(op.output_args(), loss)) break;
    }
    report_.Add(
        "W701", reduction, main_.name(loss),
        absl::StrCat("loss ", main_.name(loss), " is ", MultipleText(power),
                     " the loss of one device, where n is the number of ranks",
                     reduction.valid() ? absl::StrCat(": after ", main_.op(reduction).DebugName(),
                                                      " it would have to be ",
                                                      power > 0 ? "divided" : "multiplied", " by n")
                                       : ""));
  }

  void CheckLostGradients() {
    for (const LostGradient& lost : LostGradients(main_, facts_.Get<OpTraits>())) {
      report_.Add("W717", lost.op, main_.name(lost.output), ToString(main_, lost));
    }
  }

  // Gradients that are a multiple of those of one device, as averaged gradients of sums are. And
  // what has no known relation to what one device has, unless a loss or state that has a finding is
  // the cause; in a program without a forward pass gradients are assumed to be right.
  void CheckUpdates(bool sums_are_wanted) {
    const std::vector<OpId>& assumed = flow_.absent_gradients();
    const absl::flat_hash_set<OpId> of_absent_ops(assumed.begin(), assumed.end());
    if (flow_.updates().empty()) return;
    const bool may_be_sum = LossMayBeASum(facts_, flow_);
    // Layers 3 and 6 do not count what forward reductions do.
    const bool are_counted = flow_.forward_reductions().empty();
    absl::flat_hash_set<Symbol> parts;
    for (const BatchUpdate& update : flow_.updates()) {
      const BatchRelation found = update.value.relation;
      const Op op = main_.op(update.op);
      const bool is_gradient = update.is_gradient;
      const bool is_param = absl::c_linear_search(op.Input("Param"), update.input);
      const std::string what = absl::StrCat(op.DebugName(), ": ",
                                            is_gradient ? "gradient "
                                            : is_param  ? "parameter "
                                                        : "input ",
                                            main_.name(update.input), " is ");
      if (found.IsReplicated()) {
        // Layer 3 knows whether gradients of means are divided.
        const bool is_left_to_layer3 =
            is_gradient && ((sums_are_wanted && (are_counted || found.power == 1)) ||
                            (update.value.is_guessed && !may_be_sum && are_counted));
        if (is_left_to_layer3) continue;
        report_.Add(
            is_gradient ? "W702" : "W718", update.op, main_.name(update.input),
            absl::StrCat(what, MultipleText(found.power),
                         " the reference value, where n is the number of ranks",
                         is_gradient && may_be_sum ? ": a loss is a sum over the batch" : ""));
        continue;
      }
      const OpId cause = update.value.cause;
      if (!found.IsUnrelated()) {
        // Layer 3 names gradients that are not reduced.
        if (is_gradient || !parts.insert(update.input).second) continue;
      } else {
        if (!StatesBefore(cause).empty() || of_absent_ops.contains(cause)) continue;
        if (!reported_.insert(cause).second) continue;
      }
      report_.Add("W708", update.op, main_.name(update.input),
                  absl::StrCat(what, ToString(found), Because(main_, flow_, cause)));
    }
  }

  // Loops whose gradients are taken at their names.
  void CheckLoopGradients() {
    if (flow_.loop_gradients().empty()) return;
    const OpId first = flow_.loop_gradients()[0];
    report_.Add(
        "W713", first, FirstOutput(main_.op(first)),
        absl::StrCat(main_.op(first).DebugName(), " is assumed to compute the gradient of its loop",
                     AsDoOthers(flow_.loop_gradients().size())));
  }

  // One finding for all ops whose conditions have one cause.
  void CheckConditions() {
    std::map<OpId, std::vector<const BatchCondition*>> by_cause;
    for (const BatchCondition& condition : flow_.conditions()) {
      const OpId cause = condition.value.cause;
      by_cause[cause.valid() ? cause : condition.op].push_back(&condition);
    }
    for (const auto& [cause, conditions] : by_cause) {
      const bool is_told = reported_.count(cause) > 0;
      const BatchCondition& first = *conditions[0];
      for (const BatchCondition* condition : conditions) reported_.insert(condition->op);
      reported_.insert(cause);
      if (is_told) continue;
      if (cause != first.op) causes_of_conditions_.insert(cause);
      report_.Add("W706", first.op, main_.name(first.variable),
                  absl::StrCat(main_.op(first.op).DebugName(), " runs its block depending on ",
                               main_.name(first.variable), ", a value of the rank's batch",
                               AsDoOthers(conditions.size()),
                               cause == first.op ? "" : Because(main_, flow_, cause),
                               AdviceForConditions(conditions)));
    }
  }

  // One finding for all ops of an effect. `what` names the output.
  void CheckEffects(BatchEffect effect, const char* rule,
                    const std::function<std::string(absl::string_view)>& what,
                    absl::string_view advice = "") {
    std::vector<OpId> ops;
    for (const BatchEffectAt& at : flow_.effects()) {
      if (at.effect != effect) continue;
      reported_.insert(at.op);
      if (!OnlySeeds(main_.op(at.op))) ops.push_back(at.op);
    }
    if (ops.empty()) return;
    const Op first = main_.op(ops[0]);
    const absl::optional<Symbol> output = MainOutput(first);
    const absl::string_view variable = output.has_value() ? main_.name(*output) : "";
    report_.Add(
        rule, ops[0], variable,
        absl::StrCat(first.DebugName(), " ", what(variable), AsDoOthers(ops.size()), advice));
  }

  // Parameters that ranks update by themselves, and average.
  void CheckOwnUpdates() {
    if (flow_.own_updates().empty()) return;
    const OpId first = flow_.own_updates()[0];
    const std::string updates = absl::StrCat(
        main_.op(first).DebugName(), " updates ", main_.name(main_.op(first).Input("Param")[0]),
        " by the rank's own gradient", AsDoOthers(flow_.own_updates().size()));
    std::vector<absl::string_view> own;
    for (const BatchState& state : flow_.states()) {
      if (IsPart(state)) own.push_back(main_.var(state.variable).name());
    }
    report_.Add(
        "W709", first, own,
        absl::StrCat(
            updates, ": averages of parameters are not what one device has",
            own.empty() ? "" : absl::StrCat(", and ", StatesText(own), " is the rank's own")));
    if (!FindSumLosses(facts_, flow_).any()) return;
    report_.Add("W710", first, "",
                absl::StrCat(updates,
                             ": a loss is a sum over the batch, so that averaging "
                             "divides each update by the number of ranks"));
  }

  // States whose cause no other finding names; one finding for those that ops of one type write.
  void CheckStates() {
    std::vector<absl::string_view> parts;
    OpId adds;
    std::map<std::string, std::vector<const BatchState*>> by_type;
    for (const BatchState& state : flow_.states()) {
      if (IsPart(state) && followers_.count(state.variable) == 0) {
        if (parts.empty()) adds = state.writer;
        parts.push_back(main_.var(state.variable).name());
        continue;
      }
      const OpId cause = CauseOf(state);
      if (!IsAlreadyReported(cause, main_.var(state.variable).name_symbol())) {
        by_type[std::string(main_.op(cause).type())].push_back(&state);
      }
    }
    for (const auto& [type, states] : by_type) {
      std::vector<absl::string_view> names;
      absl::string_view follower;
      for (const BatchState* state : states) {
        names.push_back(main_.var(state->variable).name());
        const auto found = followers_.find(state->variable);
        if (found != followers_.end()) follower = main_.name(found->second);
      }
      const BatchValue& first = states[0]->value;
      const OpId cause = CauseOf(*states[0]);
      for (const BatchState* state : states) reported_.insert(CauseOf(*state));
      const std::string because =
          first.relation.IsUnrelated()
              ? Because(main_, flow_, cause)
              : absl::StrCat(": ", main_.op(cause).DebugName(), " writes it");
      report_.Add("W703", cause, names,
                  absl::StrCat(
                      StatesText(names), " is, after the step, ", ToString(first.relation), because,
                      follower.empty() ? "" : absl::StrCat("; loss ", follower, " follows from it"),
                      AdviceForStates(states)));
    }
    // CheckOwnUpdates has named them.
    if (parts.empty() || !flow_.own_updates().empty()) return;
    report_.Add("W707", adds, parts,
                absl::StrCat(StatesText(parts), " holds the rank's own part of a mean or sum"));
  }

  // Fetched values whose cause no other finding names.
  void CheckFetches() {
    std::vector<const BatchFetch*> parts;
    const std::vector<BatchFetch> fetches = OwnFetches();
    for (const BatchFetch& fetch : fetches) {
      if (!fetch.value.relation.IsUnrelated()) {
        parts.push_back(&fetch);
        continue;
      }
      // A state that an earlier step has left so has a line.
      const OpId cause = fetch.value.cause;
      if (!cause.valid() || !reported_.insert(cause).second) continue;
      const absl::string_view name = main_.var(fetch.variable).name();
      report_.Add("W712", cause, name,
                  absl::StrCat("fetched ", name, " is ", ToString(fetch.value.relation),
                               Because(main_, flow_, cause)));
    }
    if (parts.empty()) return;
    const auto append = [&](std::string* out, const BatchFetch* fetch) {
      absl::StrAppend(out, main_.var(fetch->variable).name(), " (", ToString(fetch->value.relation),
                      ")");
    };
    std::vector<absl::string_view> names;
    for (const BatchFetch* part : parts) names.push_back(main_.var(part->variable).name());
    const bool has_sums = absl::c_any_of(parts, [](const BatchFetch* part) {
      return part->value.relation == BatchRelation::PartialSum();
    });
    report_.Add("W711", parts[0]->op, names,
                absl::StrCat("fetched values are not the reference values: ",
                             absl::StrJoin(parts, ", ", append),
                             has_sums ? "; weft run prints a partial sum added up" : ""));
  }

 private:
  static bool IsMeanOrSum(BatchRelation loss) {
    return loss.IsSame() || (loss.IsPartial() && loss.power <= 0 && loss.power >= -1);
  }

  // Whether what the op draws is only the seed of ops that have an effect of their own where they
  // use it.
  bool OnlySeeds(const Op& op) {
    if (!DrawsSeed(op.type())) return false;
    const auto is_used = [&](Symbol name) {
      const VarId var = main_.block(op.block()).Resolve(name);
      if (!var.valid() || main_.var(var).persistable()) return true;
      return absl::c_linear_search(fetched_, main_.name(name)) || IsReadAsNoSeed(name);
    };
    return absl::c_none_of(op.output_args(), is_used);
  }

  bool IsReadAsNoSeed(Symbol name) {
    if (!read_as_no_seeds_.has_value()) {
      read_as_no_seeds_.emplace();
      for (const Op& op : AllOps(main_)) {
        for (const OpSignature::Slot& slot : op.signature().inputs) {
          if (main_.name(slot.name) == "Seed") continue;
          read_as_no_seeds_->insert(op.args(slot).begin(), op.args(slot).end());
        }
      }
    }
    return read_as_no_seeds_->contains(name);
  }

  // --- Options of transpile that would mend what a finding is about; empty: none ---------------

  // Of a loss that none would mend, what else does.
  std::string AdviceForLoss(VarId loss, OpId cause) const {
    const auto is_wanted = [&](const BatchFlow& flow) {
      return IsMeanOrSum(flow.AtEnd(loss).relation);
    };
    const std::string exact = what_if_.OptionsFor(WhatIfFlows::kExactLoss, is_wanted);
    if (!exact.empty()) return absl::StrCat("; transpile ", exact, " makes it the reference value");
    const std::string gathers = what_if_.OptionsFor(WhatIfFlows::kGatherNegatives, is_wanted);
    if (gathers.empty()) return LossAdvice(main_, flow_, cause);
    return absl::StrCat("; transpile ", gathers,
                        " gathers the samples of all ranks before it; if each rank is fed the "
                        "whole of an input, say so by option:feed_layout");
  }

  std::string AdviceForConditions(const std::vector<const BatchCondition*>& conditions) const {
    const std::string options =
        what_if_.OptionsFor(WhatIfFlows::kExactLoss, [&](const BatchFlow& flow) {
          absl::flat_hash_set<OpId> left;
          for (const BatchCondition& condition : flow.conditions()) left.insert(condition.op);
          return absl::c_none_of(conditions,
                                 [&](const BatchCondition* one) { return left.contains(one->op); });
        });
    if (!options.empty()) {
      return absl::StrCat("; transpile ", options, " makes it the reference value");
    }
    return "; if it depends on the time steps of data that has time first, say so by "
           "option:feed_layout, x=axis:1; else compute it from values that all ranks have";
  }

  std::string AdviceForStates(const std::vector<const BatchState*>& states) const {
    const std::string options =
        what_if_.OptionsFor(WhatIfFlows::kStatistics, [&](const BatchFlow& flow) {
          return absl::c_all_of(states, [&](const BatchState* state) {
            return flow.AtEnd(state->variable).relation.IsSame();
          });
        });
    return options.empty() ? ""
                           : absl::StrCat("; transpile ", options, " makes ",
                                          states.size() == 1 ? "it the reference value"
                                                             : "them the reference values");
  }

  // Those of the root block (FindLosses), and those that ops of inner blocks are marked to compute.
  std::vector<VarId> Losses() const {
    std::vector<VarId> losses;
    for (Symbol loss : losses_) {
      const VarId var = main_.block(0).Resolve(loss);
      if (var.valid()) losses.push_back(var);
    }
    for (const Op& op : InnerOps(main_)) {
      if ((op.role() & kRoleLoss) == 0 || IsBackward(op)) continue;
      for (Symbol name : op.output_args()) {
        const VarId var = main_.block(op.block()).Resolve(name);
        if (var.valid() && !absl::c_linear_search(losses, var)) losses.push_back(var);
      }
    }
    return losses;
  }

  // Each variable that a fetch op hands out, or that is read after the step, once, if ranks do not
  // have the value of one device. Losses and states that have it no more at the end of the step
  // have findings of their own.
  std::vector<BatchFetch> OwnFetches() const {
    std::vector<BatchFetch> all = flow_.fetches();
    for (const std::string& name : fetched_) {
      const VarId var = main_.block(0).FindVar(name);
      if (var.valid()) all.push_back({OpId(), var, flow_.AtEnd(var)});
    }
    absl::flat_hash_map<VarId, BatchRelation> told;  // of states
    for (const BatchState& state : flow_.states()) {
      told.emplace(state.variable, state.value.relation);
    }
    absl::flat_hash_set<std::pair<VarId, BatchRelation::Kind>> seen;
    const absl::flat_hash_set<Symbol> losses = LossesAndCopies();
    std::vector<BatchFetch> own;
    for (const BatchFetch& fetch : all) {
      const BatchRelation relation = fetch.value.relation;
      if (relation.IsSame()) continue;
      const bool is_at_end = flow_.AtEnd(fetch.variable).relation == relation;
      const auto state = told.find(fetch.variable);
      if (losses.contains(main_.var(fetch.variable).name_symbol()) && is_at_end) continue;
      if (state != told.end() && (is_at_end || state->second == relation)) continue;
      if (seen.insert({fetch.variable, relation.kind}).second) own.push_back(fetch);
    }
    return own;
  }

  // Also what brings losses into the other memory.
  absl::flat_hash_set<Symbol> LossesAndCopies() const {
    absl::flat_hash_set<Symbol> losses(losses_.begin(), losses_.end());
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (!CopiesFrom(op.type()).has_value()) continue;
      const auto is_loss = [&](Symbol name) { return losses.contains(name); };
      if (absl::c_all_of(op.input_args(), is_loss)) {
        losses.insert(op.output_args().begin(), op.output_args().end());
      }
    }
    return losses;
  }

  // Whether a state holds the rank's part of a mean or sum, after any number of steps.
  bool IsPart(const BatchState& state) const {
    // What ranks have reduced is no part.
    if (state.value.relation.IsReplicated() && !flow_.forward_reductions().empty()) return false;
    const auto is_part = [](BatchRelation relation) {
      return relation.IsPartial() || (relation.IsReplicated() && relation.power != 0);
    };
    const BatchRelation at_end = flow_.AtEnd(state.variable).relation;
    return is_part(state.value.relation) && is_part(at_end);
  }

  absl::string_view FirstOutput(const Op& op) const {
    return op.output_args().empty() ? "" : main_.name(op.output_args()[0]);
  }

  // Whether a line names the cause of the variable. The line of a condition says nothing of what
  // does not follow from the condition.
  bool IsAlreadyReported(OpId cause, Symbol variable) {
    if (!reported_.contains(cause)) return false;
    if (!causes_of_conditions_.contains(cause)) return true;
    const auto [followers, is_new] = followers_of_conditions_.try_emplace(cause);
    if (is_new) followers->second = FollowersOfConditions(cause);
    return followers->second.contains(variable);
  }

  // What a step computes from what blocks leave whose conditions have the cause.
  absl::flat_hash_set<Symbol> FollowersOfConditions(OpId cause) const {
    absl::flat_hash_set<OpId> deciders;
    for (const BatchCondition& condition : flow_.conditions()) {
      if (condition.value.cause == cause) deciders.insert(condition.op);
    }
    absl::flat_hash_set<Symbol> followers;
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      const auto follows = [&](Symbol name) { return followers.contains(name); };
      if (!absl::c_any_of(op.input_args(), follows) && !Decides(op, deciders)) continue;
      followers.insert(op.output_args().begin(), op.output_args().end());
    }
    return followers;
  }

  // Whether the op, or one in its blocks, is among `deciders`.
  static bool Decides(const Op& op, const absl::flat_hash_set<OpId>& deciders) {
    const auto decides = [&](const Op& one) { return deciders.contains(one.id()); };
    return decides(op) || absl::c_any_of(OpsInside(op), decides);
  }

  static OpId CauseOf(const BatchState& state) {
    return state.value.cause.valid() ? state.value.cause : state.writer;
  }

  // The states that ranks leave with other values than one device, and that the op which made a
  // value unrelated makes or reads. They are the cause then.
  std::vector<VarId> StatesBefore(OpId cause) const {
    std::vector<VarId> states;
    if (!cause.valid()) return states;
    const Op op = main_.op(cause);
    absl::flat_hash_set<VarId> read;
    for (Symbol name : op.input_args()) read.insert(main_.block(op.block()).Resolve(name));
    for (const BatchState& state : flow_.states()) {
      const bool is_read =
          read.contains(state.variable) && !flow_.AtEnd(state.variable).relation.IsSame();
      if (is_read || state.value.cause == cause) states.push_back(state.variable);
    }
    return states;
  }

  // ", as do 2 other ops", of 3 ops.
  static std::string AsDoOthers(size_t ops) {
    if (ops == 1) return "";
    return ops == 2 ? ", as does 1 other op" : absl::StrCat(", as do ", ops - 1, " other ops");
  }

  const ProgramFacts& facts_;
  const Program& main_;
  const BatchFlow& flow_;
  const std::vector<std::string>& fetched_;
  WhatIfFlows& what_if_;
  Reporter report_;
  const std::vector<Symbol>& losses_;                             // FindLosses
  absl::flat_hash_set<OpId> reported_;                            // causes
  absl::flat_hash_set<OpId> causes_of_conditions_;                // of those that have a line
  absl::optional<absl::flat_hash_set<Symbol>> read_as_no_seeds_;  // as far as needed
  // By such a cause, as far as needed.
  absl::flat_hash_map<OpId, absl::flat_hash_set<Symbol>> followers_of_conditions_;
  absl::flat_hash_map<VarId, Symbol> followers_;  // by state: a loss that follows from it
};

}  // namespace

BatchFlowOptions BatchOptionsOf(const ConstProgramPair& programs, const Setting& setting) {
  BatchFlowOptions options;
  options.setting = setting;
  if (setting.feeds.empty()) options.setting.feeds = *FeedLayoutsOf(*programs.main);
  if (programs.startup == nullptr) return options;
  RankValuesOptions of_startup;
  of_startup.setting.nranks = setting.nranks;
  for (const auto& [name, value] : ReadStartupValues(*programs.startup, of_startup)) {
    if (value.is_zero) options.zeros.insert(name);
  }
  return options;
}

bool LossMayBeASum(const ProgramFacts& main, const BatchFlow& flow) {
  const std::vector<Symbol>& losses = main.Get(FindLosses);
  return losses.empty() ||
         absl::c_any_of(losses, [&](Symbol loss) { return IsSumLoss(main.program(), flow, loss); });
}

void CheckBatch(const ProgramFacts& main, const BatchFlow& flow, const BatchCheckOptions& options,
                WhatIfFlows* what_if, ProgramRef ref, Findings* findings) {
  BatchChecker checker(main, flow, options.fetched, what_if, ref, findings);
  // Ranks that update parameters by their own gradients do not wait for each other in a step.
  const bool ranks_go_alone = !flow.own_updates().empty();
  checker.CheckEffects(
      BatchEffect::kStatistics, "W704",
      [](absl::string_view output) {
        return absl::StrCat(
            "normalizes ", output,
            " by the statistics of a rank's batch, one device by the statistics of all");
      },
      ranks_go_alone ? "" : "; transpile option:sync_batch_norm uses the statistics of all");
  checker.CheckEffects(BatchEffect::kDraws, "W705", [](absl::string_view output) {
    return absl::StrCat("draws other random numbers for ", output, " than one device");
  });
  checker.CheckEffects(BatchEffect::kSparsifies, "W714", [](absl::string_view) {
    return std::string("sends a part of the gradients, one device uses all of them");
  });
  checker.CheckEffects(BatchEffect::kCountsLabels, "W716", [](absl::string_view output) {
    return absl::StrCat(
        "makes ", output,
        " a mean over the labels that are not ignored: the reference value where all "
        "ranks have as many of these");
  });
  checker.CheckLostGradients();
  checker.CheckConditions();
  checker.CheckLosses();
  checker.CheckUpdates(options.sums_are_wanted);
  checker.CheckLoopGradients();
  checker.CheckOwnUpdates();
  checker.CheckStates();
  checker.CheckFetches();
}

}  // namespace weft
