#include "transpiler/verify/equivalence.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
EquivalenceChecker::EquivalenceChecker(const ConstProgramPair& original,
                                       const ConstProgramPair& rewritten,
                                       const RankValuesOptions& options,
                                       const absl::optional<AveragingSchedule>& averaging,
                                       ProgramRef ref, Findings* findings)
    : original_(original),
      rewritten_(rewritten),
      options_(options),
      ref_(ref),
      findings_(*findings),
      reporter_(ref, findings),
      variables_(*original.main, options.distributed_params),
      averaging_(rewritten, averaging, &table_) {}

void EquivalenceChecker::Check(const RankValues& after, size_t first_op) {
  const bool is_whole = first_op == 0;
  const Program& original = *original_.main;
  CheckStartup();
  RankValues before;
  if (is_whole || first_op < original.block(0).ops().size()) {
    RankValuesOptions one;
    one.is_one_device = true;
    one.table = &table_;
    one.first_expression = first_op;
    before = RankValues::Of(original, one);
  }
  after_ = is_whole ? &after : nullptr;
  CheckData();
  // Parameters first: what states may do depends on when parameters are averaged.
  for (const bool params : {true, false}) {
    for (VarId var : original.block(0).vars()) {
      const absl::string_view name = original.var(var).name();
      if (!original.var(var).persistable() || variables_.IsSkipped(name)) continue;
      if (variables_.IsParam(name) == params) CheckVariable(before, var, after);
    }
  }
}

void EquivalenceChecker::CheckStartup() {
  if (rewritten_.startup == nullptr) return;
  RankValuesOptions many = options_;
  many.table = &table_;
  startup_values_ = ReadStartupValues(*rewritten_.startup, many);
  if (original_.startup == nullptr) return;
  Reporter reporter({ref_.rank, /*is_startup=*/true}, &findings_);
  CheckStartupValues(*original_.startup, startup_values_, variables_, &table_, &reporter);
}

// The rewritten program is fed with what the original is fed with.
void EquivalenceChecker::CheckData() {
  for (VarId id : original_.main->block(0).vars()) {
    const Var var = original_.main->var(id);
    if (!var.need_check_feed()) continue;
    const VarId other = rewritten_.main->block(0).FindVar(var.name());
    if (other.valid() && rewritten_.main->var(other).need_check_feed() &&
        !rewritten_.main->var(other).persistable()) {
      continue;
    }
    reporter_.Add("W608", OpId(), var.name(),
                  absl::StrCat("variable ", var.name(),
                               ": the original is fed with it, expected that here, found ",
                               other.valid() ? "no mark of data" : "no such variable"));
  }
}

void EquivalenceChecker::CheckVariable(const RankValues& before, VarId var,
                                       const RankValues& after) {
  const absl::string_view name = original_.main->var(var).name();
  const VarId other = rewritten_.main->block(0).FindVar(name);
  const bool is_partial = after_ == nullptr;
  const bool was_written = before.IsWritten(var) || is_partial;
  if (!other.valid()) {
    if (was_written) Report("W603", name, "the rewritten program does not have it");
    return;
  }
  if (!rewritten_.main->var(other).persistable()) {
    return Report("W603", name, "it is persistable in the original, and not any more");
  }
  if (!was_written && !after.IsWritten(other)) return;
  Compare({name, before.AtEnd(var), after.AtEnd(other), after.AtStart(other)});
}

void EquivalenceChecker::Compare(Compared values) {
  auto& [name, expected, found, start] = values;
  // Most are unchanged in both programs, and not named: that takes time.
  if (expected.expr.valid() || found.expr.valid()) {
    expected = WithExpr(expected, name);
    found = WithExpr(found, name);
  }
  // A gradient that each rank accumulates may be kept divided, as long as it stays so and begins
  // with 0.
  if (!found.IsEqualOnRanks() && !start.IsEqualOnRanks() && start.is_gradient &&
      BeginsWithZero(name)) {
    found.factor /= start.factor;
  }
  const bool has_factor = SameFactor(found.factor, expected.factor);
  if (expected.expr == found.expr && (expected.is_zero || has_factor)) {
    if (!variables_.IsParam(name) || found.IsEqualOnRanks()) return;
    // Equal updates of a parameter that differs from the start on: W317.
    if (!start.IsEqualOnRanks() && !start.is_gradient && options_.start != nullptr) return;
    return Report("W604", name,
                  absl::StrCat("it is ", ToString(found.placement),
                               " after a step: each rank updates it by its own batch"));
  }
  expected = WithExpr(expected, name);
  found = WithExpr(found, name);
  const bool is_averaged = has_factor && IsAveraged(found, found.expr, expected.expr, name);
  // Zeros are 0 times whatever they were.
  if ((is_averaged || BeginsAnew(found.expr, ExprId(), name)) && CheckAveraged(values)) return;
  ReportDifference(values);
}

bool EquivalenceChecker::CheckAveraged(const Compared& values) {
  const ExprId found = values.found.expr;
  const ExprId condition = table_.IsSelect(found) ? table_.Operands(found)[0] : ExprId();
  // A state is averaged, or begins anew, when parameters are averaged.
  if (!variables_.IsParam(values.name)) return averaged_on_.contains(condition);
  averaged_on_.insert(condition);
  const std::string problem = averaging_.Problem(condition, after_);
  if (!problem.empty()) Report("W605", values.name, problem);
  return true;
}

void EquivalenceChecker::ReportDifference(const Compared& values) {
  const ExprId expected = table_.Scaled(values.expected.expr, values.expected.factor);
  const ExprId found = table_.Scaled(values.found.expr, values.found.factor);
  const ExpressionTable::Difference difference = table_.FindDifference(expected, found);
  if (difference.may_be_equal) {
    return Report("W607", values.name,
                  absl::StrCat("cannot decide whether ", difference.b, " is ", difference.a,
                               ", as the original has it; weft verify --numeric compares both by "
                               "running them"));
  }
  Report(variables_.IsParam(values.name) ? "W601" : "W602", values.name,
         absl::StrCat("expected ", difference.a, ", found ", difference.b, ", in ",
                      table_.ToString(found, 1)));
}

RankValue EquivalenceChecker::WithExpr(RankValue value, absl::string_view name) {
  if (!value.expr.valid()) value.expr = table_.Initial(name);
  return value;
}

bool EquivalenceChecker::BeginsWithZero(absl::string_view name) const {
  // Without a startup program it is assumed.
  if (options_.start == nullptr && startup_values_.empty()) return true;
  const auto found = startup_values_.find(name);
  return found != startup_values_.end() && found->second.is_zero;
}

// LocalSGD: `found`, a part of `value`, is the mean over ranks of what the original computes,
// always or on a condition; else what the original computes. Where parameters are averaged, states
// may begin anew.
bool EquivalenceChecker::IsAveraged(const RankValue& value, ExprId found, ExprId expected,
                                    absl::string_view name) {
  const absl::Span<const ExprId> operands = table_.Operands(found);
  if (table_.IsMeanOverRanks(found)) return operands[0] == expected;
  if (table_.IsSelect(found)) {
    const ExprId condition = operands[0], yes = operands[1], no = operands[2];
    if (no != expected) return false;
    // The mean of what is linear in gradients is what one device computes.
    if (yes == expected) return value.averaged_across_ranks;
    // On one condition only: nothing checks a second one inside the block.
    if (table_.IsSelect(yes)) return false;
    return IsAveraged(value, yes, expected, name) || BeginsAnew(yes, condition, name);
  }
  if (BeginsAnew(found, ExprId(), name)) return true;
  // A parameter that has a master weight is cast from it.
  if (absl::StartsWith(table_.Label(found), "cast[")) {
    return table_.OperationOf(found) == table_.OperationOf(expected) &&
           IsAveraged(value, operands[0], table_.Operands(expected)[0], name);
  }
  // A sum of means and of what is replicated.
  double factor = 1;
  return value.averaged_across_ranks && table_.WithoutMeans(found, &factor) == expected &&
         SameFactor(factor, 1);
}

// A state is as the startup program makes it where parameters are averaged: on `condition`, or,
// invalid, in every step.
bool EquivalenceChecker::BeginsAnew(ExprId found, ExprId condition, absl::string_view name) const {
  if (variables_.IsParam(name) || !averaged_on_.contains(condition)) return false;
  const auto initial = startup_values_.find(name);
  return initial != startup_values_.end() && initial->second.expr == found;
}

void EquivalenceChecker::Report(const char* rule, absl::string_view name, absl::string_view why) {
  const OpId op = LastWriter(name);
  const std::string writer =
      op.valid() ? absl::StrCat(", last written by ", rewritten_.main->op(op).DebugName()) : "";
  reporter_.Add(rule, op, name, absl::StrCat("variable ", name, writer, ": ", why));
}

OpId EquivalenceChecker::LastWriter(absl::string_view name) {
  const Program& program = *rewritten_.main;
  if (last_writer_.empty()) {
    last_writer_.resize(program.symbols().size());
    for (OpId id : program.block(0).ops()) {
      for (Symbol out : program.op(id).output_args()) last_writer_[out.value()] = id;
    }
  }
  const Symbol symbol = program.FindSymbol(name);
  return symbol.valid() ? last_writer_[symbol.value()] : OpId();
}

void CheckEquivalence(const ConstProgramPair& original, const ConstProgramPair& rewritten,
                      const RankValuesOptions& options,
                      const absl::optional<AveragingSchedule>& averaging, ProgramRef ref,
                      Findings* findings) {
  EquivalenceChecker checker(original, rewritten, options, averaging, ref, findings);
  RankValuesOptions many = options;
  many.table = checker.table();
  many.observer = checker.observer();
  checker.Check(RankValues::Of(*rewritten.main, many));
}

}  // namespace weft
