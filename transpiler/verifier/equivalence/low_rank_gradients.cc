#include "transpiler/verifier/equivalence/low_rank_gradients.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/values/expressions.h"
#include "transpiler/verifier/equivalence/condition_steps.h"

namespace weft {
namespace {

using Term = ExpressionTable::Term;

// Steps to check; more only to see the first one.
constexpr int kSteps = 10000;
constexpr int kMaxSteps = 1 << 22;

class LowRankChecker {
 public:
  LowRankChecker(const ConstProgramPair& programs, const ProgramFacts& facts,
                 const RankValuesOptions& options, ProgramRef ref, Findings* findings)
      : main_(*programs.main),
        has_startup_(programs.startup != nullptr),
        claim_(*options.setting.low_rank),
        steps_(programs),
        report_(ref, findings) {
    RankValuesOptions of_walk = options;
    of_walk.table = &table_;
    values_ = RankValues::Of(facts, of_walk);
    if (programs.startup == nullptr) return;
    RankValuesOptions of_startup;
    of_startup.setting.nranks = options.setting.nranks;
    start_ = ReadStartupValues(*programs.startup, of_startup);
  }

  void Check() {
    FindSent();
    for (const std::string& name : claim_.residuals) CheckResidual(name);
    if (has_startup_) {
      for (const auto& [condition, op] : conditions_) CheckSteps(condition, op);
    }
    // What a branch on the condition changes of a gradient, and no residual keeps.
    for (const Sent& sent : sent_) {
      if (sent.is_kept || !HasCondition(sent.condition)) continue;
      Report(sent.update, main_.name(sent.param),
             absl::StrCat("a part of the gradient of ", main_.name(sent.param),
                          " is sent, and no residual keeps the rest"));
    }
    if (conditions_.empty()) return;
    report_.Add(
        "W714", OpId(), "",
        absl::StrCat("from step ", claim_.first_step, " on, ranks send approximations of ",
                     claim_.residuals.size(), " gradients, one device uses the gradients",
                     has_startup_ ? "" : "; the steps are unknown without a startup program"));
  }

 private:
  // A gradient of which an optimizer takes `value` in its place on a condition.
  struct Sent {
    ExprId condition, value, gradient;
    OpId update;
    Symbol param;
    bool is_kept = false;
  };

  bool HasCondition(ExprId condition) const {
    return absl::c_any_of(conditions_, [&](const auto& known) { return known.first == condition; });
  }

  void FindSent() {
    ExpressionWalk walk(table_);
    for (const RankUpdate& update : values_.events().updates) {
      if (!update.grad.expr.valid()) continue;
      walk.Add(update.grad.expr);
      while (!walk.done()) {
        const ExprId expr = walk.Next();
        if (!table_.IsSelect(expr)) continue;
        const absl::Span<const ExprId> operands = table_.Operands(expr);
        const ExprId condition = operands[0], yes = operands[1], no = operands[2];
        sent_.push_back({condition, yes, no, update.op,
                         main_.op(update.op).Input("Param")[update.index], false});
      }
    }
  }

  void CheckResidual(const std::string& name) {
    const VarId var = main_.block(0).FindVar(name);
    if (!var.valid()) return Report(OpId(), name, "the program does not have it");
    if (!main_.var(var).persistable()) {
      return Report(OpId(), name,
                    "it is not persistable, so that a step loses what the one before did not send");
    }
    if (start_.has_value()) {
      const auto start = start_->find(name);
      if (start == start_->end()) {
        return Report(OpId(), name, "it has no value when training begins: expected zeros");
      }
      if (!start->second.is_zero) {
        return Report(OpId(), name,
                      "it begins with other values than zeros, which would be sent as gradients");
      }
    }
    const RankValue& end = values_.AtEnd(var);
    const ExprId before = table_.Initial(name);
    const ExprId found = end.expr.valid() ? table_.Scaled(end.expr, end.factor) : before;
    if (!table_.IsSelect(found) || table_.Operands(found)[2] != before) {
      return Report(OpId(), name,
                    absl::StrCat("after a step, it is ", table_.ToString(found),
                                 "; expected another value from step ", claim_.first_step, " on"));
    }
    const ExprId condition = table_.Operands(found)[0], kept = table_.Operands(found)[1];
    const Sent* closest = nullptr;
    for (Sent& sent : sent_) {
      if (sent.condition != condition || sent.is_kept) continue;
      if (kept == SumOf({{sent.gradient, 1}, {before, 1}, {sent.value, -1}})) {
        sent.is_kept = true;
        if (!HasCondition(condition)) conditions_.emplace_back(condition, sent.update);
        return;
      }
      if (closest == nullptr) closest = &sent;
    }
    Report(closest == nullptr ? OpId() : closest->update, name,
           absl::StrCat("it becomes ", table_.ToString(kept), ", expected ",
                        closest == nullptr
                            ? "a gradient and what was kept of it, less what is sent instead"
                            : table_.ToString(SumOf(
                                  {{closest->gradient, 1}, {before, 1}, {closest->value, -1}})),
                        ": what is sent and what is kept are not the gradient"));
  }

  // The condition must hold from the first step on.
  void CheckSteps(ExprId condition, OpId update) {
    const auto report = [&](absl::string_view why) {
      Report(
          update, *claim_.residuals.begin(),
          absl::StrCat("it changes on condition ", table_.ToString(condition, 4), ", which ", why));
    };
    const int64_t horizon = std::max<int64_t>(kSteps, 2 * int64_t{claim_.first_step});
    if (horizon > kMaxSteps) {
      return report(
          absl::StrCat("would have to be followed for ", horizon, " steps, more than ", kMaxSteps));
    }
    for (const RankCondition& branch : values_.events().conditions) {
      const bool is_found = branch.variable.valid() && branch.value.expr.valid() &&
                            main_.op(branch.op).block() == 0 &&
                            table_.Scaled(branch.value.expr, branch.value.factor) == condition;
      if (!is_found) continue;
      steps_.Add(branch.op, branch.variable);
      const absl::StatusOr<const ConditionSteps::Steps*> steps =
          steps_.Run(branch.op, branch.variable, static_cast<int>(horizon));
      if (!steps.ok()) {
        return report(absl::StrCat("cannot be followed: ", steps.status().message()));
      }
      const std::vector<int>& held = (*steps)->held;
      if (!(*steps)->failure.ok()) {
        return report(absl::StrCat("fails: ", (*steps)->failure.message()));
      }
      for (int step = claim_.first_step; step <= (*steps)->last; ++step) {
        const size_t i = step - claim_.first_step;
        if (i < held.size() && held[i] == step) continue;
        const bool holds = i < held.size() && held[i] < step;
        return report(absl::StrCat(holds ? "holds" : "does not hold", " in step ",
                                   holds ? held[i] : step, ", expected from step ",
                                   claim_.first_step, " on"));
      }
      return;
    }
    report("no op of the root block decides on");
  }

  ExprId SumOf(std::vector<Term> terms) {
    double factor = 1;
    const ExprId sum = table_.Sum(&terms, &factor);
    return table_.Scaled(sum, factor);
  }

  void Report(OpId op, absl::string_view name, absl::string_view why) {
    report_.Add("W319", op, name, absl::StrCat("residual ", name, ": ", why));
  }

  const Program& main_;
  const bool has_startup_;
  const LowRankGradients& claim_;
  ConditionSteps steps_;
  Reporter report_;
  ExpressionTable table_;
  RankValues values_;
  absl::optional<StartupValues> start_;
  std::vector<Sent> sent_;
  std::vector<std::pair<ExprId, OpId>> conditions_;  // on which residuals change, and an update
};

}  // namespace

void CheckLowRankGradients(const ConstProgramPair& programs, const ProgramFacts& main,
                           const RankValuesOptions& options, ProgramRef ref, Findings* findings) {
  if (!options.setting.low_rank.has_value()) return;
  LowRankChecker(programs, main, options, ref, findings).Check();
}

}  // namespace weft
