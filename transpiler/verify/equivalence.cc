#include "transpiler/verify/equivalence.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/updates.h"
#include "transpiler/verify/example_program.h"
#include "transpiler/verify/reporter.h"

namespace weft {
namespace {

class Comparison {
 public:
  Comparison(const Program& original, const Program& program, const RankValuesOptions& options,
             ProgramRef ref, Findings* findings)
      : original_(original),
        program_(program),
        options_(options),
        ref_(ref),
        findings_(*findings),
        reporter_(EquivalenceRules(), ref, findings),
        updates_(FindUpdates(original)) {
    for (VarId var : original.block(0).vars()) {
      if (original.var(var).is_parameter()) is_param_.insert(original.var(var).name());
    }
    for (const ParamUpdate& update : updates_) {
      for (Symbol state : update.states) is_param_.erase(original.name(state));
    }
    // Paddle calls them parameters, too.
    for (Symbol statistic : FindRunningStatistics(original)) {
      is_param_.erase(original.name(statistic));
    }
    for (const ParamUpdate& update : updates_) {
      if (IsDistributed(original.name(update.param))) {
        // Each rank has a part of it: there is nothing to compare it with.
        is_skipped_.insert(original.name(update.param));
        for (Symbol state : update.states) is_skipped_.insert(original.name(state));
        continue;
      }
      is_param_.insert(original.name(update.param));
      if (update.master.valid()) is_param_.insert(original.name(update.master));
    }
  }

  void Run() {
    RankValuesOptions one;
    one.is_one_device = true;
    one.table = &table_;
    const RankValues before = RankValues::Of(original_, one);
    RankValuesOptions many = options_;
    many.table = &table_;
    many.observer = nullptr;
    const RankValues after = RankValues::Of(program_, many);
    FindChanging(after);
    // Parameters first: what states may do depends on when parameters are averaged.
    for (const bool params : {true, false}) {
      for (VarId var : original_.block(0).vars()) {
        const absl::string_view name = original_.var(var).name();
        if (!original_.var(var).persistable() || is_skipped_.contains(name)) continue;
        if (is_param_.contains(name) == params) Compare(before, var, after);
      }
    }
  }

  // What the startup program makes of every persistable variable, on one device and on all.
  void RunStartup(const Program& original) {
    RankValuesOptions one;
    one.is_one_device = true;
    one.is_startup = true;
    one.table = &table_;
    const RankValues before = RankValues::Of(original, one);
    Reporter reporter(EquivalenceRules(), {ref_.rank, /*is_startup=*/true}, &findings_);
    for (VarId var : original.block(0).vars()) {
      const absl::string_view name = original.var(var).name();
      if (!original.var(var).persistable() || !before.IsWritten(var)) continue;
      if (is_skipped_.contains(name)) continue;
      const auto found = initial_.find(name);
      const RankValue& expected = before.AtEnd(var);
      if (found == initial_.end()) {
        reporter.Add("W606", OpId(), name, [&] {
          return absl::StrCat("variable ", name, ": expected ", table_.ToString(expected.expr),
                              " when training begins, found nothing");
        });
      } else if (found->second.expr != expected.expr ||
                 !(expected.is_zero || SameFactor(found->second.factor, expected.factor))) {
        reporter.Add("W606", OpId(), name, [&] {
          const ExpressionTable::Difference difference =
              table_.FindDifference(expected.expr, found->second.expr);
          return absl::StrCat("variable ", name, ": expected ", difference.a,
                              " when training begins, found ", difference.b);
        });
      }
    }
  }

  // To be called before Run and RunStartup.
  void ReadStartup(const Program& startup) {
    RankValuesOptions many = options_;
    many.start = nullptr;
    many.is_startup = true;
    many.table = &table_;
    many.observer = nullptr;
    const RankValues values = RankValues::Of(startup, many);
    for (VarId var : startup.block(0).vars()) {
      if (values.IsWritten(var)) initial_.emplace(startup.var(var).name(), values.AtEnd(var));
    }
  }

 private:
  void Compare(const RankValues& before, VarId var, const RankValues& after) {
    const absl::string_view name = original_.var(var).name();
    const Symbol symbol = program_.FindSymbol(name);
    const VarId other = symbol.valid() ? program_.block(0).FindVar(symbol) : VarId();
    const bool was_written = before.IsWritten(var);
    if (!other.valid()) {
      if (was_written) Report("W603", name, "the rewritten program does not have it");
      return;
    }
    if (!program_.var(other).persistable()) {
      return Report("W603", name, "it is persistable in the original, and not any more");
    }
    if (!was_written && !after.IsWritten(other)) return;
    const RankValue a = WithExpr(before.AtEnd(var), name);
    RankValue b = WithExpr(after.AtEnd(other), name);
    // A gradient that is accumulated by each rank may be kept divided, as long as it stays so, and
    // begins with nothing.
    const RankValue& start = after.AtStart(other);
    if (!b.IsSame() && !start.IsSame() && start.is_gradient && BeginsWithZero(name)) {
      b.factor /= start.factor;
    }
    const bool is_param = is_param_.contains(name);
    if (a.expr == b.expr && (a.is_zero || SameFactor(b.factor, a.factor))) {
      if (!is_param || b.IsSame()) return;
      // Equal updates of what differs from the start on: a finding of the third layer.
      if (!start.IsSame() && !start.is_gradient && options_.start != nullptr) return;
      return Report("W604", name,
                    absl::StrCat("it is ", ToString(b.place),
                                 " after a step: each rank updates it by its own batch"));
    }
    if (SameFactor(b.factor, a.factor) && IsAveraged(b.expr, a.expr, name)) {
      const bool is_select = table_.IsSelect(b.expr);
      if (is_param) {
        averaged_on_.insert(is_select ? table_.Operands(b.expr)[0] : ExprId());
      }
      if (!is_param || !is_select || Changes(table_.Operands(b.expr)[0])) return;
      return Report("W605", name,
                    absl::StrCat("it is averaged over the ranks on condition ",
                                 table_.ToString(table_.Operands(b.expr)[0], 4),
                                 ", which is the same in every step"));
    }
    if (!findings_.Keeps(is_param ? "W601" : "W602")) {
      return Report(is_param ? "W601" : "W602", name, "");
    }
    const ExprId x = table_.Scaled(a.expr, a.factor);
    const ExprId y = table_.Scaled(b.expr, b.factor);
    const ExpressionTable::Difference difference = table_.FindDifference(x, y);
    Report(is_param ? "W601" : "W602", name,
           absl::StrCat("expected ", difference.a, ", found ", difference.b, ", in ",
                        table_.ToString(y, 1)));
  }

  // What is not the same when the next step begins: data, and what a step changes.
  void FindChanging(const RankValues& after) {
    for (VarId id : program_.block(0).vars()) {
      const Var var = program_.var(id);
      if (!var.persistable() && !var.need_check_feed()) continue;
      const ExprId start = table_.Initial(var.name());
      const RankValue& end = after.AtEnd(id);
      const bool is_changed = var.persistable() && after.IsWritten(id) && end.expr.valid() &&
                              (end.expr != start || !SameFactor(end.factor, 1));
      if (is_changed || var.need_check_feed()) changing_.insert(start);
    }
  }

  bool Changes(ExprId condition) const {
    absl::flat_hash_set<ExprId> seen = {condition};
    std::vector<ExprId> todo = {condition};
    while (!todo.empty()) {
      const ExprId expr = todo.back();
      todo.pop_back();
      if (changing_.contains(expr)) return true;
      for (ExprId operand : table_.Operands(expr)) {
        if (seen.insert(operand).second) todo.push_back(operand);
      }
    }
    return false;
  }

  RankValue WithExpr(RankValue value, absl::string_view name) {
    if (!value.expr.valid()) value.expr = table_.Initial(name);
    return value;
  }

  bool IsDistributed(absl::string_view name) const {
    return options_.distributed_params.count(std::string(name)) > 0;
  }

  bool BeginsWithZero(absl::string_view name) const {
    if (options_.start == nullptr && initial_.empty()) return true;  // nobody says
    const auto found = initial_.find(name);
    return found != initial_.end() && found->second.is_zero;
  }

  // LocalSGD: the mean over ranks of what the original computes, always or on a condition; else
  // what the original computes. Where parameters are averaged, states may begin anew.
  bool IsAveraged(ExprId found, ExprId expected, absl::string_view name) const {
    const absl::Span<const ExprId> operands = table_.Operands(found);
    if (table_.IsMeanOverRanks(found)) return operands[0] == expected;
    if (table_.IsSelect(found)) {
      if (operands[2] != expected) return false;
      return IsAveraged(operands[1], expected, name) || BeginsAnew(operands[1], operands[0], name);
    }
    if (BeginsAnew(found, ExprId(), name)) return true;
    // A parameter that has a master weight is cast from it.
    return operands.size() == 1 && table_.Operands(expected).size() == 1 &&
           table_.Label(found) == "cast" &&
           table_.OperationOf(found) == table_.OperationOf(expected) &&
           IsAveraged(operands[0], table_.Operands(expected)[0], name);
  }

  // A state is as the startup program makes it where parameters are averaged: on `condition`, or,
  // invalid, in every step.
  bool BeginsAnew(ExprId found, ExprId condition, absl::string_view name) const {
    if (is_param_.contains(name) || !averaged_on_.contains(condition)) return false;
    const auto initial = initial_.find(name);
    return initial != initial_.end() && initial->second.expr == found;
  }

  void Report(const char* rule, absl::string_view name, absl::string_view why) {
    const OpId op = LastWriter(name);
    reporter_.Add(rule, op, name, [&] {
      const std::string writer =
          op.valid() ? absl::StrCat(", last written by ", program_.op(op).DebugName()) : "";
      return absl::StrCat("variable ", name, writer, ": ", why);
    });
  }

  OpId LastWriter(absl::string_view name) {
    if (last_writer_.empty()) {
      last_writer_.resize(program_.symbols().size());
      for (OpId id : program_.block(0).ops()) {
        for (Symbol out : program_.op(id).output_args()) last_writer_[out.value()] = id;
      }
    }
    const Symbol symbol = program_.FindSymbol(name);
    return symbol.valid() ? last_writer_[symbol.value()] : OpId();
  }

  const Program& original_;
  const Program& program_;
  const RankValuesOptions& options_;
  const ProgramRef ref_;
  Findings& findings_;
  Reporter reporter_;
  const std::vector<ParamUpdate> updates_;
  absl::flat_hash_set<absl::string_view> is_param_;
  absl::flat_hash_set<absl::string_view> is_skipped_;
  ExpressionTable table_;
  absl::flat_hash_map<std::string, RankValue> initial_;  // what the startup program makes
  // Conditions on which parameters are averaged; invalid: in every step.
  absl::flat_hash_set<ExprId> averaged_on_;
  absl::flat_hash_set<ExprId> changing_;
  std::vector<OpId> last_writer_;  // by Symbol; empty until somebody asks
};

}  // namespace

void CheckEquivalence(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
                      const RankValuesOptions& options, ProgramRef ref, Findings* findings) {
  Comparison comparison(*original.main, *rewritten.main, options, ref, findings);
  if (rewritten.startup != nullptr) {
    comparison.ReadStartup(*rewritten.startup);
    if (original.startup != nullptr) comparison.RunStartup(*original.startup);
  }
  comparison.Run();
}

namespace {

constexpr Rule kRules[] = {
    {"W601", Severity::kError, "a parameter is updated by something else than in the original",
     "Shown is the smallest part of the expressions that differs.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W602", Severity::kError, "a state is something else after a step than in the original",
     "Moments, velocities, counters and statistics have to be what they were.",
     WEFT_EXAMPLE_VARS
     R"(    var steps : fp32[1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[steps] = increment(X=[steps]) {step=2.0}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS
     R"(    var steps : fp32[1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[steps] = increment(X=[steps]) {step=1.0}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W603", Severity::kError, "a variable that the original keeps from step to step is gone",
     "What the original saves and resumes from would not be there.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS
     R"(    var steps : fp32[1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[steps] = increment(X=[steps]) {step=1.0}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W604", Severity::kError,
     "a parameter is updated on each rank by its own batch, and never averaged",
     "Ranks drift apart.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
         WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
         WEFT_EXAMPLE_END},
    {"W605", Severity::kError, "parameters are averaged on a condition that never changes",
     "They are averaged in every step or in none: the counter that decides stands still.",
     WEFT_EXAMPLE_VARS
     R"(    var step : int64[1] persistable
    var last : int64[1] persistable
    var due : bool[1]
    var scope : step_scopes
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
     R"(    Out=[due] = equal(X=[step], Y=[last])
    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
         WEFT_EXAMPLE_END},
    {"W606", Severity::kError, "a variable begins with another value than in the original",
     "Training would start somewhere else.",
     WEFT_EXAMPLE_BEGIN
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_BEGIN WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     R"(program {
  block 0 parent=-1 {
    var w : fp32[1, 1] parameter persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=2.0}
    c_comm_init_all() {ring_id=0}
  }
})",
     R"(program {
  block 0 parent=-1 {
    var w : fp32[1, 1] parameter persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}
  }
})"},
};

}  // namespace

absl::Span<const Rule> EquivalenceRules() { return kRules; }

}  // namespace weft
