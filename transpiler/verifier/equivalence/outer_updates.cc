#include "transpiler/verifier/equivalence/outer_updates.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/analysis/values/op_operations.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
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
      delay_(options.setting.averaging.has_value() ? options.setting.averaging->delay : 0),
      sent_(options.setting.averaging.has_value() ? options.setting.averaging->sent
                                                  : AveragingSchedule::Sent::kNative),
      lr_(ExactFactor(static_cast<float>(outer_.lr))),
      momentum_(ExactFactor(static_cast<float>(outer_.momentum))),
      mix_(options.setting.averaging.has_value()
               ? ExactFactor(static_cast<float>(options.setting.averaging->mix))
               : 0),
      rest_(options.setting.averaging.has_value()
                ? ExactFactor(static_cast<float>(1 - options.setting.averaging->mix))
                : 1),
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
  const State* const last = FindLast(param);
  if (last == nullptr) {
    result.problem =
        absl::StrCat("it is ", table_.ToString(param.value), ", but no state of the program keeps ",
                     mix_ > 0 ? "the part of it that ranks share" : "that value",
                     " for the next synchronization");
    return result;
  }
  result.last = last->name;
  Formula d;
  CheckGradient(param, *last, &d, &result);
  if (!result.problem.empty()) return result;
  switch (outer_.rule) {
    case Rule::kAveraging:
      break;
    case Rule::kSgd:
      CheckSgd(param, *last, d, &result);
      break;
    case Rule::kNesterov:
      CheckNesterov(param, *last, d, &result);
      break;
    case Rule::kSlowMo:
      CheckSlowMo(param, *last, d, &result);
      break;
  }
  return result;
}

const OuterUpdates::State* OuterUpdates::FindLast(const Synchronized& param) {
  if (rest_ == 0) return nullptr;
  const ExprId shared =
      mix_ == 0 ? param.value : SumOf({{param.value, 1 / rest_}, {param.local, -mix_ / rest_}});
  const State* const last = FindByValue(shared);
  return last != nullptr && last->value == shared ? last : nullptr;
}

// Where a gradient is taken before its use, the parameter and `last` end the step as they began it,
// or as the optimizer of the program left them: the two conditions do not hold in one step, as
// AveragingConditions shows of launched_on.
void OuterUpdates::CheckGradient(const Synchronized& param, const State& last, Formula* d,
                                 Result* result) {
  const ExprId x = table_.Initial(last.name);
  *d = {{x, 1}, {param.local, -1}};
  const State* gradient = nullptr;
  if (delay_ > 0) {
    gradient = FindGradientIn(last.value, param);
    if (gradient == nullptr) {
      result->problem = absl::StrCat("state ", last.name, " becomes ", table_.ToString(last.value),
                                     ", in which no state of the program is an outer gradient of ",
                                     delay_, delay_ == 1 ? " step" : " steps", " before");
      return;
    }
    result->gradient = gradient->name;
    result->launched_on = gradient->condition;
    if (param.condition.valid()) {
      *d = {{table_.Select(param.condition, last.value, x), 1},
            {table_.Select(param.condition, param.value, param.local), -1}};
    }
  }
  if (IsRounded(last)) {
    CheckRounding(last, gradient != nullptr ? gradient->value : last.value,
                  gradient != nullptr ? gradient->condition : param.condition, d, result);
    if (!result->problem.empty()) return;
  }
  if (gradient != nullptr) {
    result->problem = ProblemOf(*gradient, gradient->condition, std::move(*d),
                                absl::StrCat("outer gradient ", gradient->name));
    *d = {{table_.Initial(gradient->name), 1}};
  }
  if (IsRounded(last)) *d = {{table_.Cast((*d)[0].expr, "fp32"), (*d)[0].factor}};
}

bool OuterUpdates::IsRounded(const State& last) const {
  if (sent_ == AveragingSchedule::Sent::kNative) return false;
  const VarId var = rewritten_.main->block(0).FindVar(last.name);
  const absl::optional<TensorType> type = DeclaredType(rewritten_.main->var(var));
  return type.has_value() && type->dtype == DType::kFloat32;
}

void OuterUpdates::CheckRounding(const State& last, ExprId from, ExprId condition, Formula* d,
                                 Result* result) {
  const State* const error = FindErrorIn(from, condition, last);
  if (error == nullptr) {
    result->problem = absl::StrCat("what ranks send comes from ", table_.ToString(from),
                                   ", in which no state of the program is what rounding to ",
                                   ToString(sent_), " took from it before");
    return;
  }
  result->error = error->name;
  // Ranks send the n-th part, if they know what n is.
  const double ranks = options_.setting.nranks.value_or(1);
  for (Term& term : *d) term.factor /= ranks;
  d->push_back({table_.Initial(error->name), 1});
  double factor = 1;
  const ExprId whole = table_.Sum(d, &factor);
  const ExprId rounded = table_.Cast(whole, ToString(sent_));
  const ExprId kept = SumOf({{whole, factor}, {table_.Cast(rounded, "fp32"), -factor}});
  if (error->condition != condition || error->value != kept) {
    const ExpressionTable::Difference difference = table_.FindDifference(kept, error->value);
    result->problem = absl::StrCat(
        "what is sent and what is kept are not the outer gradient: "
        "expected state ",
        error->name, " to become ", difference.a, ", found ", difference.b);
  }
  *d = {{options_.IsOneRank() ? rounded : table_.MeanOverRanks(rounded), factor * ranks}};
}

const OuterUpdates::State* OuterUpdates::FindErrorIn(ExprId value, ExprId condition,
                                                     const State& last) {
  // All states of a single rank are equal on all ranks, but only what it keeps is less a cast.
  const auto is_kept = [&](const State& state) {
    if (&state == &last || state.condition != condition) return false;
    if (!options_.IsOneRank()) return state.placement == RankValue::Placement::kLocal;
    return absl::c_any_of(table_.Operands(table_.Unscaled(state.value).expr),
                          [&](ExprId term) { return table_.IsCast(term); });
  };
  const auto is_followed = [&](ExprId expr) {
    return table_.IsCast(expr) || table_.IsMeanOverRanks(expr) ||
           ProductAlgebraOf(expr).has_value();
  };
  const ExprId outermost = table_.Unscaled(value).expr;
  std::vector<ExprId> todo = {value};
  while (!todo.empty()) {
    const ExprId whole = table_.Unscaled(todo.back()).expr;
    todo.pop_back();
    const bool follows_all = is_followed(whole);
    for (ExprId term : table_.Operands(whole)) {
      const auto found = by_initial_.find(term);
      if (found != by_initial_.end()) {
        // A term of the value itself has not been sent.
        const State& state = states_[found->second];
        if ((whole != outermost || follows_all) && is_kept(state)) return &state;
      } else if (follows_all || is_followed(table_.Unscaled(term).expr)) {
        todo.push_back(term);
      }
    }
  }
  return nullptr;
}

namespace {

// `factor` times `formula`, added to `sum`.
void AddTo(std::vector<Term>* sum, const std::vector<Term>& formula, double factor) {
  for (const Term& term : formula) sum->push_back({term.expr, factor * term.factor});
}

}  // namespace

void OuterUpdates::CheckSgd(const Synchronized& param, const State& last, const Formula& d,
                            Result* result) {
  Formula next = {{table_.Initial(last.name), 1}};
  AddTo(&next, d, -lr_);
  result->problem = ProblemOf(last, param.condition, std::move(next), "the parameter");
}

// The velocity v is in the state as s = momentum v: s' = momentum (s + d), x' = x - lr (d + s').
void OuterUpdates::CheckNesterov(const Synchronized& param, const State& last, const Formula& d,
                                 Result* result) {
  const State* const velocity = FindVelocityIn(last.value, param, last);
  if (velocity == nullptr) {
    result->problem = absl::StrCat("it is ", table_.ToString(param.value),
                                   ", in which no state of the program is a velocity");
    return;
  }
  result->velocity = velocity->name;
  const ExprId x = table_.Initial(last.name), s = table_.Initial(velocity->name);
  Formula next_x = {{x, 1}, {s, -lr_ * momentum_}}, next_s = {{s, momentum_}};
  AddTo(&next_x, d, -lr_ * (1 + momentum_));
  AddTo(&next_s, d, momentum_);
  result->problem = ProblemOf(last, param.condition, std::move(next_x), "the parameter");
  if (!result->problem.empty()) return;
  result->problem = ProblemOf(*velocity, param.condition, std::move(next_s),
                              absl::StrCat("velocity ", velocity->name));
}

// u' = momentum u + d / rate, x' = x - lr u' rate.
void OuterUpdates::CheckSlowMo(const Synchronized& param, const State& last, const Formula& d,
                               Result* result) {
  const ExprId product = FindTerm(last.value, Algebra::kMultiply);
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
  ExprId mean = SumOf(d);
  if (delay_ == 0 && !IsRounded(last) && !options_.IsOneRank()) {
    mean = SumOf({{x, 1}, {table_.MeanOverRanks(param.local), -1}});
    // Without roles of ops, the mean of the difference is no difference of means.
    Formula difference = d;
    double factor = 1;
    const ExprId own = table_.Sum(&difference, &factor);
    const ExprId mean_of_own = table_.Scaled(table_.MeanOverRanks(own), factor);
    if (table_.Operands(quotient)[0] == mean_of_own) mean = mean_of_own;
  }
  const Formula next_u = {{u, momentum_},
                          {table_.Call(table_.OperationOf(quotient), {mean, rate}), 1}};
  const ExprId scaled = table_.Scaled(SumOf(next_u), lr_);
  result->problem = ProblemOf(
      last, param.condition,
      {{x, 1}, {table_.Call(table_.OperationOf(product), {scaled, rate}), -1}}, "the parameter");
  if (!result->problem.empty()) return;
  result->problem =
      ProblemOf(*velocity, param.condition, next_u, absl::StrCat("velocity ", velocity->name));
}

std::string OuterUpdates::ProblemOf(const State& state, ExprId condition, Formula formula,
                                    absl::string_view what) {
  if (state.condition != condition) {
    return absl::StrCat("state ", state.name, " changes on another condition than the parameter");
  }
  if (state.placement != RankValue::Placement::kReplicated) {
    return absl::StrCat("state ", state.name, " is ", ToString(state.placement),
                        " after a synchronization; expected it equal on all ranks, made of the "
                        "mean of their outer gradients");
  }
  double expected_factor = 1, found_factor = 1;
  const ExprId expected = table_.WithoutMeans(SumOf(std::move(formula)), &expected_factor);
  // Of a value that is equal on all ranks. Within products, quotients and casts, means stay.
  const ExprId found = table_.WithoutMeans(state.value, &found_factor);
  if (found == expected && SameFactor(found_factor, expected_factor)) return "";
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Scaled(expected, expected_factor), state.value);
  return absl::StrCat("expected ", what, " to become ", difference.a, ", found ", difference.b);
}

const OuterUpdates::State* OuterUpdates::FindByValue(ExprId value) const {
  const auto found = by_value_.find(table_.Unscaled(value).expr);
  return found == by_value_.end() ? nullptr : &states_[found->second];
}

const OuterUpdates::State* OuterUpdates::FindVelocityIn(ExprId value, const Synchronized& param,
                                                        const State& last) {
  for (ExprId term : table_.Operands(table_.Unscaled(value).expr)) {
    const auto found = by_initial_.find(term);
    if (found == by_initial_.end()) continue;
    const State& state = states_[found->second];
    if (&state != &last && (delay_ == 0 || state.condition == param.condition)) return &state;
  }
  return nullptr;
}

const OuterUpdates::State* OuterUpdates::FindGradientIn(ExprId value, const Synchronized& param) {
  ExpressionWalk walk(table_);
  walk.Add(value);
  while (!walk.done()) {
    const auto found = by_initial_.find(walk.Next());
    if (found == by_initial_.end()) continue;
    const State& state = states_[found->second];
    if (state.condition.valid() && state.condition != param.condition) return &state;
  }
  return nullptr;
}

absl::optional<Algebra> OuterUpdates::ProductAlgebraOf(ExprId value) {
  if (algebra_of_.empty()) {
    OpOperations operations(*rewritten_.main, &table_);
    for (const Op& op : AllOps(*rewritten_.main)) {
      if (op.input_args().size() != 2 || op.output_args().size() != 1) continue;
      const Algebra found = AlgebraOf(op, FindOpSchema(op.type()));
      if (found != Algebra::kMultiply && found != Algebra::kDivide) continue;
      algebra_of_.emplace(operations.Of(op), found);
    }
  }
  const auto found = algebra_of_.find(table_.OperationOf(value));
  if (found == algebra_of_.end()) return absl::nullopt;
  return found->second;
}

ExprId OuterUpdates::FindTerm(ExprId value, Algebra algebra) {
  const auto is_found = [&](ExprId term) { return ProductAlgebraOf(term) == algebra; };
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
