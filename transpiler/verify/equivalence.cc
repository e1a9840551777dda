#include "transpiler/verify/equivalence.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/analysis/scalar_slice.h"
#include "ops/analysis/updates.h"
#include "proto/op_role.h"
#include "transpiler/verify/example_program.h"
#include "transpiler/verify/kept_prefix.h"
#include "transpiler/verify/local_schedule.h"
#include "transpiler/verify/reporter.h"

namespace weft {
namespace {

// Which op decides on a condition, by its expression.
class Conditions : public RankObserver {
 public:
  struct Branch {
    OpId op;
    Symbol condition;
  };

  explicit Conditions(ExpressionTable* table) : table_(*table) {}

  void Restart() override { branches_.clear(); }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override {}
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override {}
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {
    const bool decides =
        op.Input("Cond").size() == 1 && NumberAttr(op, "is_scalar_condition", 0) != 0;
    if (!value.expr.valid() || op.block() != 0 || !decides) return;
    branches_.emplace(table_.Scaled(value.expr, value.factor), Branch{op.id(), condition});
  }
  void OnOpaqueBlock(const Op& op) override {}

  // nullptr: none of the root block.
  const Branch* Find(ExprId condition) const {
    const auto found = branches_.find(condition);
    return found == branches_.end() ? nullptr : &found->second;
  }

 private:
  ExpressionTable& table_;
  absl::flat_hash_map<ExprId, Branch> branches_;
};

class Comparison {
 public:
  Comparison(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
             const RankValuesOptions& options, const absl::optional<LocalSteps>& local_steps,
             ProgramRef ref, Findings* findings)
      : original_(*original.main),
        program_(*rewritten.main),
        original_startup_(original.startup),
        startup_(rewritten.startup),
        options_(options),
        local_steps_(local_steps),
        ref_(ref),
        findings_(*findings),
        reporter_(EquivalenceRules(), ref, findings),
        updates_(FindUpdates(original_)),
        conditions_(&table_) {
    for (VarId var : original_.block(0).vars()) {
      if (original_.var(var).is_parameter()) is_param_.insert(original_.var(var).name());
    }
    for (const ParamUpdate& update : updates_) {
      for (Symbol state : update.states) is_param_.erase(original_.name(state));
    }
    // Paddle calls them parameters, too.
    for (Symbol statistic : FindRunningStatistics(original_)) {
      is_param_.erase(original_.name(statistic));
    }
    for (Symbol param : FindTrainedByHand(original_)) is_param_.insert(original_.name(param));
    for (const ParamUpdate& update : updates_) {
      if (IsDistributed(original_.name(update.param))) {
        // Each rank has a part of it: there is nothing to compare it with.
        is_skipped_.insert(original_.name(update.param));
        for (Symbol state : update.states) is_skipped_.insert(original_.name(state));
        continue;
      }
      is_param_.insert(original_.name(update.param));
      if (update.master.valid()) is_param_.insert(original_.name(update.master));
    }
  }

  // To be given to whoever walks the rewritten program.
  ExpressionTable* table() { return &table_; }
  RankObserver* observer() { return &conditions_; }

  // What the rewritten program makes, walking it.
  RankValues WalkRewritten() {
    RankValuesOptions many = options_;
    many.table = &table_;
    many.observer = &conditions_;
    return RankValues::Of(program_, many);
  }

  // `after`: with expressions from somewhere on, where the original has come to op
  // `first_of_original` of its root block, and variables hold in both what their names say.
  void Run(const RankValues& after, size_t first_of_original = 0) {
    is_partial_ = first_of_original > 0;
    if (startup_ != nullptr) {
      ReadStartup(*startup_);
      if (original_startup_ != nullptr) RunStartup(*original_startup_);
    }
    RankValues before;
    if (first_of_original == 0 || first_of_original < original_.block(0).ops().size()) {
      RankValuesOptions one;
      one.is_one_device = true;
      one.table = &table_;
      one.first_expression = first_of_original;
      before = RankValues::Of(original_, one);
    }
    after_ = &after;
    CheckData();
    // Parameters first: what states may do depends on when parameters are averaged.
    for (const bool params : {true, false}) {
      for (VarId var : original_.block(0).vars()) {
        const absl::string_view name = original_.var(var).name();
        if (!original_.var(var).persistable() || is_skipped_.contains(name)) continue;
        if (is_param_.contains(name) == params) Compare(before, var, after);
      }
    }
  }

 private:
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

  // What the original is given, the rewritten program has to be given.
  void CheckData() {
    for (VarId id : original_.block(0).vars()) {
      const Var var = original_.var(id);
      if (!var.need_check_feed()) continue;
      const Symbol symbol = program_.FindSymbol(var.name());
      const VarId other = symbol.valid() ? program_.block(0).FindVar(symbol) : VarId();
      if (other.valid() && program_.var(other).need_check_feed() &&
          !program_.var(other).persistable()) {
        continue;
      }
      reporter_.Add("W608", OpId(), var.name(), [&] {
        return absl::StrCat("variable ", var.name(),
                            ": the original is fed with it, expected that "
                            "here, found ",
                            other.valid() ? "no mark of data" : "no such variable");
      });
    }
  }

  void Compare(const RankValues& before, VarId var, const RankValues& after) {
    const absl::string_view name = original_.var(var).name();
    const Symbol symbol = program_.FindSymbol(name);
    const VarId other = symbol.valid() ? program_.block(0).FindVar(symbol) : VarId();
    const bool was_written = before.IsWritten(var) || is_partial_;
    if (!other.valid()) {
      if (was_written) Report("W603", name, "the rewritten program does not have it");
      return;
    }
    if (!program_.var(other).persistable()) {
      return Report("W603", name, "it is persistable in the original, and not any more");
    }
    if (!was_written && !after.IsWritten(other)) return;
    RankValue a = before.AtEnd(var);
    RankValue b = after.AtEnd(other);
    // Most are what they were in both: not to be named.
    const auto name_both = [&] {
      a = WithExpr(a, name);
      b = WithExpr(b, name);
    };
    if (a.expr.valid() || b.expr.valid()) name_both();
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
    name_both();
    const bool is_averaged =
        SameFactor(b.factor, a.factor) && IsAveraged(b, b.expr, a.expr, name);
    // Zeros are 0 times whatever they were.
    if (is_averaged || BeginsAnew(b.expr, ExprId(), name)) {
      const ExprId condition = table_.IsSelect(b.expr) ? table_.Operands(b.expr)[0] : ExprId();
      if (is_param) averaged_on_.insert(condition);
      const std::string why = is_param ? ScheduleProblem(condition) : "";
      if (!why.empty()) return Report("W605", name, why);
      // A state that is averaged, or begins anew, does so when parameters are averaged.
      if (is_param || averaged_on_.contains(condition)) return;
    }
    const ExprId x = table_.Scaled(a.expr, a.factor);
    const ExprId y = table_.Scaled(b.expr, b.factor);
    const ExpressionTable::Difference difference = table_.FindDifference(x, y);
    if (difference.may_be_equal) {
      return Report("W607", name,
                    absl::StrCat("cannot decide whether ", difference.b, " is ", difference.a,
                                 ", as the original has it; weft verify --numeric compares both by "
                                 "running them"));
    }
    Report(is_param ? "W601" : "W602", name,
           absl::StrCat("expected ", difference.a, ", found ", difference.b, ", in ",
                        table_.ToString(y, 1)));
  }

  // What is wrong with averaging on a condition; invalid: in every step. Empty: nothing.
  std::string ScheduleProblem(ExprId condition) {
    const auto known = schedule_problems_.find(condition);
    if (known != schedule_problems_.end()) return known->second;
    std::string why;
    if (!condition.valid()) {
      if (local_steps_.has_value() && (local_steps_->every > 1 || local_steps_->begin > 1)) {
        why = absl::StrCat("it is averaged over the ranks in every step, expected ",
                           DescribeSteps(*local_steps_));
      }
    } else {
      why = ProblemOfCondition(condition);
      if (!why.empty()) {
        why = absl::StrCat("it is averaged over the ranks on condition ",
                           table_.ToString(condition, 4), ", ", why);
      }
    }
    return schedule_problems_.emplace(condition, why).first->second;
  }

  std::string ProblemOfCondition(ExprId condition) {
    absl::StatusOr<ScalarSlice> slice = absl::UnimplementedError("no startup program is given");
    const Conditions::Branch* branch = conditions_.Find(condition);
    if (branch == nullptr) {
      slice = absl::UnimplementedError("no op of the root block decides on it");
    } else if (startup_ != nullptr) {
      slice = ScalarSlice::Of(program_, *startup_, branch->op, branch->condition);
    }
    if (!slice.ok()) {
      if (local_steps_.has_value()) {
        return absl::StrCat("of which nobody can tell when it holds: ", slice.status().message());
      }
      // By data, perhaps: as long as it can change.
      return is_partial_ || !Changes(condition) ? "which is the same in every step" : "";
    }
    return ProblemOfSchedule(&*slice, local_steps_);
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

  bool Changes(ExprId condition) {
    if (changing_.empty()) FindChanging(*after_);
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

  // LocalSGD: `found`, a part of `value`, is the mean over ranks of what the original computes,
  // always or on a condition; else what the original computes. Where parameters are averaged,
  // states may begin anew.
  bool IsAveraged(const RankValue& value, ExprId found, ExprId expected, absl::string_view name) {
    const absl::Span<const ExprId> operands = table_.Operands(found);
    if (table_.IsMeanOverRanks(found)) return operands[0] == expected;
    if (table_.IsSelect(found)) {
      const ExprId condition = operands[0], yes = operands[1], no = operands[2];
      if (no != expected) return false;
      // The mean of what is linear in gradients is what one device computes.
      if (yes == expected) return value.has_met;
      // On one condition: what is decided in the block again, nobody has looked at.
      if (table_.IsSelect(yes)) return false;
      return IsAveraged(value, yes, expected, name) || BeginsAnew(yes, condition, name);
    }
    if (BeginsAnew(found, ExprId(), name)) return true;
    // A parameter that has a master weight is cast from it.
    if (absl::StartsWith(table_.Label(found), "cast[")) {
      return table_.OperationOf(found) == table_.OperationOf(expected) &&
             IsAveraged(value, operands[0], table_.Operands(expected)[0], name);
    }
    // A sum of what is the same on all ranks and of means.
    double factor = 1;
    return value.has_met && table_.WithoutMeans(found, &factor) == expected &&
           SameFactor(factor, 1);
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
  const Program* const original_startup_;  // may be null, as the other
  const Program* const startup_;
  const RankValuesOptions& options_;
  const absl::optional<LocalSteps> local_steps_;
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
  absl::flat_hash_map<ExprId, std::string> schedule_problems_;
  Conditions conditions_;
  bool is_partial_ = false;               // expressions begin behind the start of the programs
  const RankValues* after_ = nullptr;     // what the rewritten program makes
  absl::flat_hash_set<ExprId> changing_;  // empty until somebody asks
  std::vector<OpId> last_writer_;         // by Symbol; empty until somebody asks
};

}  // namespace

void CheckEquivalence(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
                      const RankValuesOptions& options,
                      const absl::optional<LocalSteps>& local_steps, ProgramRef ref,
                      Findings* findings) {
  Comparison comparison(original, rewritten, options, local_steps, ref, findings);
  comparison.Run(comparison.WalkRewritten());
}

class EquivalenceProof::Impl {
 public:
  Impl(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
       const RankValuesOptions& options, const absl::optional<LocalSteps>& local_steps)
      : options_(options),
        kept_(*original.main, *rewritten.main),
        comparison_(original, rewritten, options_, local_steps, ProgramRef(), &findings_) {}

  void Join(RankValuesOptions* options) {
    options->table = comparison_.table();
    options->first_expression = kept_.program_ops();
    options->original_ops = &kept_.kept();
  }
  std::vector<RankObserver*> observers() { return {&kept_, comparison_.observer()}; }

  bool Succeeds(const RankValues& after) {
    if (!kept_.Holds()) return false;
    comparison_.Run(after, kept_.original_ops());
    return findings_.all().empty();
  }

 private:
  const RankValuesOptions options_;
  KeptPrefix kept_;
  Findings findings_;
  Comparison comparison_;
};

EquivalenceProof::EquivalenceProof(const ProgramsToCompare& original,
                                   const ProgramsToCompare& rewritten,
                                   const RankValuesOptions& options,
                                   const absl::optional<LocalSteps>& local_steps)
    : impl_(std::make_unique<Impl>(original, rewritten, options, local_steps)) {}
EquivalenceProof::~EquivalenceProof() = default;
void EquivalenceProof::Join(RankValuesOptions* options) { impl_->Join(options); }
std::vector<RankObserver*> EquivalenceProof::observers() { return impl_->observers(); }
bool EquivalenceProof::Succeeds(const RankValues& after) { return impl_->Succeeds(after); }

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
    {"W605", Severity::kError, "parameters are averaged in other steps than they should be",
     "Or, where nobody says when, on a condition that is the same in every step, or does not hold "
     "any more after some: a counter stands still, say.",
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
    {"W607", Severity::kError,
     "it cannot be decided whether a variable is what it is in the original",
     "What differs is a loop, a part of a fused buffer that is not followed, a reduction to one "
     "rank, or a sum of more than 64 terms: the same, perhaps, in another form. Run both.",
     WEFT_EXAMPLE_VARS
     R"(    var state : fp32[1] persistable
    var more : bool[1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE
     R"(    Out=[state] = while(Condition=[more], X=[state]) {sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[state] = scale(X=[state]) {scale=0.25}
    Out=[more] = logical_not(X=[more])
)" WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS
     R"(    var state : fp32[1] persistable
    var more : bool[1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
     R"(    Out=[state] = while(Condition=[more], X=[state]) {sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[state] = scale(X=[state]) {scale=0.5}
    Out=[state] = scale(X=[state]) {scale=0.5}
    Out=[more] = logical_not(X=[more])
)" WEFT_EXAMPLE_END},
    {"W608", Severity::kError, "what the original is fed with is no data any more",
     "Ranks would not get batches of their own, or none at all.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[4, 1] persistable
    var w : fp32[1, 1] parameter persistable
    var lr : fp32[1] persistable
    var y@GRAD : fp32[4, 1]
    var w@GRAD : fp32[1, 1]
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
         WEFT_EXAMPLE_END},
};

}  // namespace

absl::Span<const Rule> EquivalenceRules() { return kRules; }

}  // namespace weft
