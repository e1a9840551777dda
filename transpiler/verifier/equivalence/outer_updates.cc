#include "transpiler/verifier/equivalence/outer_updates.h"

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/analysis/values/op_operations.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/program.h"

namespace weft {
namespace {

using Rule = OuterOptimizer::Rule;
using Term = ExpressionTable::Term;

}  // namespace

OuterUpdates::OuterUpdates(const ConstProgramPair& original, const ConstProgramPair& rewritten,
                           const RankValuesOptions& options, ExpressionTable* table)
    : original_(original),
      rewritten_(rewritten),
      options_(options),
      outer_(options.setting.averaging.has_value() ? options.setting.averaging->outer
                                                   : OuterOptimizer()),
      lr_(ExactFactor(static_cast<float>(outer_.lr))),
      momentum_(ExactFactor(static_cast<float>(outer_.momentum))),
      table_(*table) {}

void OuterUpdates::FindStates(const RankValues& after) {
  if (!outer_.HasState()) return;
  const Program& main = *rewritten_.main;
  for (VarId var : main.block(0).vars()) {
    const absl::string_view name = main.var(var).name();
    if (!main.var(var).persistable() || !after.IsWritten(var)) continue;
    if (original_.main->block(0).FindVar(name).valid()) continue;
    const RankValue& end = after.AtEnd(var);
    if (!end.expr.valid()) continue;
    State state{std::string(name), ExprId(), table_.Scaled(end.expr, end.factor), end.placement};
    const ExprId initial = table_.Initial(name);
    if (table_.IsSelect(end.expr)) {
      const absl::Span<const ExprId> operands = table_.Operands(end.expr);
      const ExprId yes = operands[1], no = operands[2];
      state.condition = operands[0];
      if (table_.Scaled(no, end.factor) != initial) continue;
      state.value = table_.Scaled(yes, end.factor);
    }
    by_value_.emplace(table_.Unscaled(state.value).expr, states_.size());
    by_initial_.emplace(initial, states_.size());
    states_.push_back(std::move(state));
  }
}

OuterUpdates::Result OuterUpdates::Check(const Synchronized& param) {
  Result result;
  const State* const last = FindByValue(param.value);
  if (last == nullptr || last->value != param.value) {
    result.problem = absl::StrCat("it is ", table_.ToString(param.value),
                                  ", but no state of the program keeps that value for the next "
                                  "synchronization");
    return result;
  }
  result.last = last->name;
  const ExprId x = table_.Initial(last->name);
  switch (outer_.rule) {
    case Rule::kAveraging:
      break;
    case Rule::kSgd:
      result.problem = ProblemOf(*last, param, {{x, 1 - lr_}, {param.local, lr_}}, "the parameter");
      break;
    case Rule::kNesterov:
      CheckNesterov(param, *last, &result);
      break;
    case Rule::kSlowMo:
      CheckSlowMo(param, *last, &result);
      break;
  }
  return result;
}

// The velocity v is in the state as s = momentum v: s' = momentum (s + d), x' = x - lr (d + s'),
// where d = x - local.
void OuterUpdates::CheckNesterov(const Synchronized& param, const State& last, Result* result) {
  const State* const velocity = FindVelocityIn(param.value, last);
  if (velocity == nullptr) {
    result->problem = absl::StrCat("it is ", table_.ToString(param.value),
                                   ", in which no state of the program is a velocity");
    return;
  }
  result->velocity = velocity->name;
  const ExprId x = table_.Initial(last.name), s = table_.Initial(velocity->name);
  const double of_d = lr_ * (1 + momentum_);
  result->problem = ProblemOf(
      last, param, {{x, 1 - of_d}, {param.local, of_d}, {s, -lr_ * momentum_}}, "the parameter");
  if (!result->problem.empty()) return;
  result->problem =
      ProblemOf(*velocity, param, {{s, momentum_}, {x, momentum_}, {param.local, -momentum_}},
                absl::StrCat("velocity ", velocity->name));
}

// u' = momentum u + d / rate, x' = x - lr u' rate, where d = x - local. Not linear, so that means
// are where the formula has them.
void OuterUpdates::CheckSlowMo(const Synchronized& param, const State& last, Result* result) {
  const ExprId product = FindTerm(param.value, Algebra::kMultiply);
  const State* const velocity =
      product.valid() ? FindByValue(table_.Operands(product)[0]) : nullptr;
  const ExprId quotient =
      velocity != nullptr ? FindTerm(velocity->value, Algebra::kDivide) : ExprId();
  if (!quotient.valid()) {
    result->problem =
        absl::StrCat("it is ", table_.ToString(param.value),
                     ", in which no state of the program is a velocity times the learning rate");
    return;
  }
  result->velocity = velocity->name;
  const ExprId rate = table_.Operands(product)[1];
  const ExprId uncast = table_.IsCast(rate) ? table_.Operands(rate)[0] : rate;
  if (!param.rate.valid() || uncast != param.rate) {
    result->problem = absl::StrCat(
        "it moves by ", table_.ToString(uncast), " times the velocity, expected ",
        param.rate.valid() ? table_.ToString(param.rate) : "the learning rate of its optimizer");
    return;
  }
  const ExprId x = table_.Initial(last.name), u = table_.Initial(velocity->name);
  const ExprId mean = options_.IsOneRank() ? param.local : table_.MeanOverRanks(param.local);
  ExprId d = SumOf({{x, 1}, {mean, -1}});
  // Without roles of ops, the mean of the difference is no difference of means.
  Formula difference = {{x, 1}, {param.local, -1}};
  double factor = 1;
  const ExprId own = table_.Sum(&difference, &factor);
  const ExprId mean_of_own = table_.Scaled(table_.MeanOverRanks(own), factor);
  if (table_.Operands(quotient)[0] == mean_of_own) d = mean_of_own;
  const Formula next_u = {{u, momentum_},
                          {table_.Call(table_.OperationOf(quotient), {d, rate}), 1}};
  const ExprId scaled = table_.Scaled(SumOf(next_u), lr_);
  result->problem = ProblemOf(
      last, param, {{x, 1}, {table_.Call(table_.OperationOf(product), {scaled, rate}), -1}},
      "the parameter");
  if (!result->problem.empty()) return;
  result->problem = ProblemOf(*velocity, param, next_u, absl::StrCat("velocity ", velocity->name));
}

std::string OuterUpdates::ProblemOf(const State& state, const Synchronized& param, Formula formula,
                                    absl::string_view what) {
  if (state.condition != param.condition) {
    return absl::StrCat("state ", state.name, " changes on another condition than the parameter");
  }
  if (state.placement != RankValue::Placement::kReplicated) {
    return absl::StrCat("state ", state.name, " is ", ToString(state.placement),
                        " after a synchronization; expected it equal on all ranks, made of the "
                        "mean of their outer gradients");
  }
  double expected_factor = 1, found_factor = 1;
  const ExprId expected = table_.Sum(&formula, &expected_factor);
  const bool is_linear = outer_.rule != Rule::kSlowMo;
  const Term whole = table_.Unscaled(state.value);
  const ExprId found = is_linear ? table_.WithoutMeans(state.value, &found_factor) : whole.expr;
  if (!is_linear) found_factor = whole.factor;
  if (found == expected && SameFactor(found_factor, expected_factor)) return "";
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Scaled(expected, expected_factor), state.value);
  return absl::StrCat("expected ", what, " to become ", difference.a, ", found ", difference.b);
}

const OuterUpdates::State* OuterUpdates::FindByValue(ExprId value) const {
  const auto found = by_value_.find(table_.Unscaled(value).expr);
  return found == by_value_.end() ? nullptr : &states_[found->second];
}

const OuterUpdates::State* OuterUpdates::FindVelocityIn(ExprId value, const State& last) {
  for (ExprId term : table_.Operands(table_.Unscaled(value).expr)) {
    const auto found = by_initial_.find(term);
    if (found != by_initial_.end() && &states_[found->second] != &last) {
      return &states_[found->second];
    }
  }
  return nullptr;
}

ExprId OuterUpdates::FindTerm(ExprId value, Algebra algebra) {
  if (algebra_of_.empty()) {
    OpOperations operations(*rewritten_.main, &table_);
    for (const Op& op : AllOps(*rewritten_.main)) {
      if (op.input_args().size() != 2 || op.output_args().size() != 1) continue;
      const Algebra found = AlgebraOf(op, FindOpSchema(op.type()));
      if (found != Algebra::kMultiply && found != Algebra::kDivide) continue;
      algebra_of_.emplace(operations.Of(op), found);
    }
  }
  const auto is_found = [&](ExprId term) {
    const auto of_term = algebra_of_.find(table_.OperationOf(term));
    return of_term != algebra_of_.end() && of_term->second == algebra;
  };
  const ExprId whole = table_.Unscaled(value).expr;
  if (is_found(whole)) return whole;
  for (ExprId term : table_.Operands(whole)) {
    if (is_found(term)) return term;
  }
  return ExprId();
}

ExprId OuterUpdates::SumOf(Formula terms) {
  double factor = 1;
  const ExprId sum = table_.Sum(&terms, &factor);
  return table_.Scaled(sum, factor);
}

}  // namespace weft
