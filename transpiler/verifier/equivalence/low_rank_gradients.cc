#include "transpiler/verifier/equivalence/low_rank_gradients.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/op_operations.h"
#include "ops/schema/op_kinds.h"
#include "proto/all_ops.h"
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
        report_(ref, findings),
        table_(options.table == nullptr ? own_table_ : *options.table) {
    RankValuesOptions of_walk = options;
    of_walk.table = &table_;
    values_ = RankValues::Of(facts, of_walk);
    FindOperations();
    if (programs.startup == nullptr) return;
    RankValuesOptions of_startup;
    of_startup.setting.nranks = options.setting.nranks;
    start_ = ReadStartupValues(*programs.startup, of_startup);
  }

  void CheckResiduals() {
    for (VarId var : main_.block(0).vars()) {
      if (main_.var(var).persistable()) states_[table_.Initial(main_.var(var).name())] = var;
    }
    FindSent();
    for (const std::string& name : claim_.residuals) CheckResidual(name);
    CheckOtherStates();
  }

  void TakeWholeGradients() {
    CheckResiduals();
    for (const Sent& sent : sent_) {
      if (sent.is_kept) table_.TakeAs(sent.select, sent.gradient);
    }
  }

  void Check() {
    CheckResiduals();
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
    ExprId select, condition, value, gradient;
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
        by_rest_[SumOf({{no, 1}, {yes, -1}})].push_back(sent_.size());
        sent_.push_back({expr, condition, yes, no, update.op,
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
    const auto is_open = [&](const Sent& sent) {
      return sent.condition == condition && !sent.is_kept;
    };
    const auto of_rest = by_rest_.find(SumOf({{kept, 1}, {before, -1}}));
    if (of_rest != by_rest_.end()) {
      for (size_t i : of_rest->second) {
        Sent& sent = sent_[i];
        if (!is_open(sent)) continue;
        sent.is_kept = true;
        if (!HasCondition(condition)) conditions_.emplace_back(condition, sent.update);
        const std::string problem =
            ProblemOfMatrices(sent, SumOf({{sent.gradient, 1}, {before, 1}}));
        if (!problem.empty()) Report(sent.update, name, problem);
        return;
      }
    }
    const auto closest = absl::c_find_if(sent_, is_open);
    const bool has_closest = closest != sent_.end();
    Report(
        has_closest ? closest->update : OpId(), name,
        absl::StrCat("it becomes ", table_.ToString(kept), ", expected ",
                     has_closest ? table_.ToString(SumOf(
                                       {{closest->gradient, 1}, {before, 1}, {closest->value, -1}}))
                                 : "a gradient and what was kept of it, less what is sent instead",
                     ": what is sent and what is kept are not the gradient"));
  }

  // --- The two matrices

  struct Product {
    bool trans_x, trans_y;
  };

  void FindOperations() {
    OpOperations operations(main_, &table_);
    for (const Op& op : AllOps(main_)) {
      if (FactorsOrthonormally(op.type())) {
        for (size_t i = 0; i < op.output_args().size(); ++i) {
          if (op.Output("Q").data() != &op.output_args()[i]) continue;
          factorizations_.emplace(operations.Of(op), operations.OutputIndex(op, i));
        }
      }
      const bool is_v2 = op.BoolAttr("trans_x").has_value();
      if (!is_v2 && !op.BoolAttr("transpose_X").has_value()) continue;
      products_.emplace(operations.Of(op),
                        Product{op.BoolAttr(is_v2 ? "trans_x" : "transpose_X").value_or(false),
                                op.BoolAttr(is_v2 ? "trans_y" : "transpose_Y").value_or(false)});
    }
  }

  // The operands of such a product; none: it is something else. Means are equal to what they are of
  // where that is linear in gradients.
  absl::Span<const ExprId> FactorsOf(ExprId expr, bool trans_x, bool trans_y) const {
    if (table_.IsMeanOverRanks(expr)) expr = table_.Operands(expr)[0];
    const auto product = products_.find(table_.OperationOf(expr));
    const bool is_such = product != products_.end() && product->second.trans_x == trans_x &&
                         product->second.trans_y == trans_y;
    return is_such ? table_.Operands(expr) : absl::Span<const ExprId>();
  }

  // The matrix of which op qr makes this one, with orthonormal columns; invalid: it does not.
  ExprId MadeOrthonormal(ExprId expr) {
    const auto factors = factorizations_.find(table_.OperationOf(expr));
    if (factors == factorizations_.end()) return ExprId();
    const std::vector<ExprId> matrix = Copied(table_.Operands(expr));
    const ExprId call = table_.Call(factors->first, matrix, 2);
    return ExpressionTable::Output(call, factors->second) == expr ? matrix[0] : ExprId();
  }

  // `whole`: the gradient and what was kept of it.
  std::string ProblemOfMatrices(const Sent& sent, ExprId whole) {
    const auto unlike = [&](ExprId found, absl::string_view expected) {
      return absl::StrCat("ranks send ", table_.ToString(sent.value), ", where ",
                          table_.ToString(found), " is not ", expected);
    };
    const std::vector<ExprId> matrices = Copied(FactorsOf(sent.value, false, true));
    if (matrices.empty()) return unlike(sent.value, "the product of two matrices of few columns");
    const ExprId left = matrices[0], right = matrices[1];
    const ExprId projected = MadeOrthonormal(left);
    if (!projected.valid()) return unlike(left, "made orthonormal by op qr");
    const double factor = table_.Unscaled(projected).factor;
    if (factor != 1) {
      return absl::StrCat("op qr takes ", factor,
                          " times the mean of what ranks project their gradients to: average over "
                          "the ranks instead of a sum, or divide by their number before it");
    }
    const std::vector<ExprId> of_right = Copied(FactorsOf(right, true, false));
    if (of_right != std::vector<ExprId>{whole, left}) {
      return unlike(right, "the gradient, with what was kept, times the left matrix");
    }
    const std::vector<ExprId> of_left = Copied(FactorsOf(projected, false, false));
    const ExprId basis_before = of_left.size() == 2 ? MadeOrthonormal(of_left[1]) : ExprId();
    const auto is_kept_in = [&](VarId var) {
      const RankValue& end = values_.AtEnd(var);
      return end.expr.valid() && table_.Scaled(end.expr, end.factor) ==
                                     table_.Select(sent.condition, right, basis_before);
    };
    const auto basis = states_.find(basis_before);
    if (basis == states_.end() || of_left[0] != whole || !is_kept_in(basis->second)) {
      return unlike(
          projected,
          "the gradient, with what was kept, times what op qr makes orthonormal of a state that "
          "becomes the right matrix");
    }
    bases_.insert(basis->second);
    return "";
  }

  // All other states are made of what is sent, not of the gradient itself: layer 6 takes one for
  // the other.
  void CheckOtherStates() {
    absl::flat_hash_set<ExprId> seen;
    for (const Sent& sent : sent_) {
      if (sent.is_kept) seen.insert(sent.select);
    }
    std::vector<ExprId> todo;
    const auto visit = [&](ExprId expr) {
      if (expr.valid() && seen.insert(expr).second) todo.push_back(expr);
    };
    for (VarId var : main_.block(0).vars()) {
      const bool is_claimed =
          bases_.contains(var) || claim_.residuals.count(std::string(main_.var(var).name())) > 0;
      if (main_.var(var).persistable() && !is_claimed) visit(values_.AtEnd(var).expr);
    }
    while (!todo.empty()) {
      const ExprId expr = todo.back();
      todo.pop_back();
      for (ExprId operand : table_.Operands(expr)) visit(operand);
    }
    for (const Sent& sent : sent_) {
      const ExprId gradient = table_.Unscaled(sent.gradient).expr;
      const absl::Span<const ExprId> terms =
          table_.IsSum(gradient) ? table_.Operands(gradient) : absl::MakeConstSpan(&gradient, 1);
      if (!sent.is_kept ||
          absl::c_none_of(terms, [&](ExprId term) { return seen.contains(term); })) {
        continue;
      }
      const absl::string_view param = main_.name(sent.param);
      Report(sent.update, param,
             absl::StrCat("a state is made of the gradient of ", param,
                          " itself, beside what is sent for it"));
    }
  }

  static std::vector<ExprId> Copied(absl::Span<const ExprId> exprs) {
    return {exprs.begin(), exprs.end()};
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
  ExpressionTable own_table_;
  ExpressionTable& table_;
  RankValues values_;
  absl::flat_hash_map<OperationId, Product> products_;
  absl::flat_hash_map<OperationId, uint32_t> factorizations_;  // which output is Q
  absl::flat_hash_set<VarId> bases_;
  absl::optional<StartupValues> start_;
  absl::flat_hash_map<ExprId, VarId> states_;  // by their values when a step begins
  std::vector<Sent> sent_;
  // Of sent_, by what is not sent, the gradient less `value`.
  absl::flat_hash_map<ExprId, std::vector<size_t>> by_rest_;
  std::vector<std::pair<ExprId, OpId>> conditions_;  // on which residuals change, and an update
};

}  // namespace

void CheckLowRankGradients(const ConstProgramPair& programs, const ProgramFacts& main,
                           const RankValuesOptions& options, ProgramRef ref, Findings* findings) {
  if (!options.setting.low_rank.has_value()) return;
  RankValuesOptions own = options;
  own.table = nullptr;
  LowRankChecker(programs, main, own, ref, findings).Check();
}

void TakeWholeGradients(const ProgramFacts& main, const RankValuesOptions& options) {
  if (!options.setting.low_rank.has_value()) return;
  Findings unused;  // of layer 3
  LowRankChecker({&main.program(), nullptr}, main, options, ProgramRef(), &unused)
      .TakeWholeGradients();
}

}  // namespace weft
