#include "transpiler/verify/batch.h"

#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/analysis/losses.h"

namespace weft {
namespace {

// "X=[a, b] (a partial sum)", for the inputs that are not what one device has.
std::string InputsOf(const Program& main, const BatchFlow& flow, const Op& op) {
  std::vector<std::string> inputs;
  absl::flat_hash_set<Symbol> seen;
  for (Symbol name : op.input_args()) {
    const VarId var = main.block(op.block()).Resolve(name);
    if (!var.valid() || flow.AtEnd(var).relation.IsSame() || !seen.insert(name).second) continue;
    inputs.push_back(absl::StrCat(main.name(name), " (", ToString(flow.AtEnd(var).relation), ")"));
  }
  return inputs.empty() ? "" : absl::StrCat(" of ", absl::StrJoin(inputs, ", "));
}

// The op that made a value unrelated, and from what.
std::string Because(const Program& main, const BatchFlow& flow, OpId cause) {
  if (!cause.valid()) return "";
  const Op op = main.op(cause);
  return absl::StrCat(": ", op.DebugName(), " makes it", InputsOf(main, flow, op));
}

class BatchChecker {
 public:
  BatchChecker(const Program& main, const BatchFlow& flow, ProgramRef ref, Findings* findings)
      : main_(main), flow_(flow), report_(ref, findings) {}

  void CheckLosses() {
    for (Symbol loss : FindLosses(main_)) {
      const VarId var = main_.block(0).Resolve(loss);
      if (!var.valid()) continue;
      const BatchValue& value = flow_.AtEnd(var);
      const BatchRelation relation = value.relation;
      const bool is_known = relation.IsSame() ||
                            (relation.IsPartial() && relation.power <= 0 && relation.power >= -1);
      if (is_known || !reported_.insert(value.cause).second) continue;
      report_.Add("W701", value.cause, main_.name(loss),
                  absl::StrCat("loss ", main_.name(loss), " is no mean and no sum over the batch",
                               Because(main_, flow_, value.cause)));
    }
  }

  // Gradients of sums, averaged: W312 and W314 are about those of means. And gradients that passed
  // a collective of the forward pass: it adds what other ranks contribute, which their gradients
  // need not show.
  void CheckUpdates(bool sums_are_wanted) {
    const bool passes_collective =
        absl::c_any_of(flow_.lifts(), [](const BatchLift& lift) { return lift.is_trained; });
    const bool are_sums = !sums_are_wanted && LossesAreSums(main_, flow_) == true;
    for (const BatchUpdate& update : flow_.updates()) {
      const BatchRelation gradient = update.value.relation;
      const std::string what = absl::StrCat(main_.op(update.op).DebugName(), ": gradient ",
                                            main_.name(update.gradient), " is ");
      if (are_sums && gradient.IsReplicated()) {
        report_.Add("W702", update.op, main_.name(update.gradient),
                    absl::StrCat(what, "n^", gradient.power,
                                 " times that of one device, where n is the number of ranks: the "
                                 "loss is a sum over the batch"));
      }
      const OpId cause = update.value.cause;
      if (!passes_collective || !gradient.IsUnrelated() || !reported_.insert(cause).second)
        continue;
      report_.Add("W708", update.op, main_.name(update.gradient),
                  absl::StrCat(what, ToString(gradient), Because(main_, flow_, cause)));
    }
  }

  void CheckConditions() {
    for (OpId op : flow_.conditions()) {
      reported_.insert(op);
      report_.Add("W706", op, "",
                  absl::StrCat(main_.op(op).DebugName(),
                               " runs its block depending on values of the rank's batch"));
    }
  }

  // One finding for all ops of an effect.
  void CheckEffects(BatchEffect effect, const char* rule, const char* what) {
    std::vector<OpId> ops;
    for (const BatchEffectAt& at : flow_.effects()) {
      if (at.effect != effect) continue;
      ops.push_back(at.op);
      reported_.insert(at.op);
    }
    if (ops.empty()) return;
    const std::string others =
        ops.size() == 1 ? "" : absl::StrCat(", as do ", ops.size() - 1, " other ops");
    report_.Add(rule, ops[0], "", absl::StrCat(main_.op(ops[0]).DebugName(), " ", what, others));
  }

  // States whose cause no other finding names; one finding for those that ops of one type write.
  void CheckStates() {
    std::vector<Symbol> partial;
    OpId adds;
    std::map<std::string, std::vector<const BatchState*>> by_type;
    for (const BatchState& state : flow_.states()) {
      if (state.value.relation.IsPartial() && flow_.AtEnd(state.variable).relation.IsPartial()) {
        if (partial.empty()) adds = state.writer;
        partial.push_back(main_.var(state.variable).name_symbol());
        continue;
      }
      const OpId cause = state.value.cause.valid() ? state.value.cause : state.writer;
      if (reported_.count(cause) == 0)
        by_type[std::string(main_.op(cause).type())].push_back(&state);
    }
    for (const auto& [type, states] : by_type) {
      std::vector<Symbol> names;
      for (const BatchState* state : states) {
        names.push_back(main_.var(state->variable).name_symbol());
      }
      const BatchValue& first = states[0]->value;
      const OpId cause = first.cause.valid() ? first.cause : states[0]->writer;
      report_.Add("W703", cause, main_.name(names[0]),
                  absl::StrCat(ListOf(names), " is, after the step, ", ToString(first.relation),
                               Because(main_, flow_, cause)));
    }
    if (partial.empty()) return;
    report_.Add("W707", adds, main_.name(partial[0]),
                absl::StrCat(ListOf(partial), " holds the rank's own part of a mean or sum"));
  }

 private:
  // "state a", or "each of 12 states (a, b, c, ...)".
  std::string ListOf(const std::vector<Symbol>& names) const {
    constexpr size_t kMaxNames = 8;
    if (names.size() == 1) return absl::StrCat("state ", main_.name(names[0]));
    std::vector<absl::string_view> some;
    for (Symbol name : names) {
      if (some.size() < kMaxNames) some.push_back(main_.name(name));
    }
    return absl::StrCat("each of ", names.size(), " states (", absl::StrJoin(some, ", "),
                        names.size() > kMaxNames ? ", ..." : "", ")");
  }

  const Program& main_;
  const BatchFlow& flow_;
  Reporter report_;
  absl::flat_hash_set<OpId> reported_;  // causes
};

}  // namespace

void CheckBatch(const Program& main, const BatchFlow& flow, bool sums_are_wanted, ProgramRef ref,
                Findings* findings) {
  BatchChecker checker(main, flow, ref, findings);
  checker.CheckLosses();
  checker.CheckUpdates(sums_are_wanted);
  checker.CheckConditions();
  checker.CheckEffects(
      BatchEffect::kStatistics, "W704",
      "normalizes by the statistics of a rank's batch, one device by those of all");
  checker.CheckEffects(BatchEffect::kDraws, "W705", "draws other random numbers than one device");
  checker.CheckStates();
}

}  // namespace weft
