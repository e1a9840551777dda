#include "transpiler/verifier/equivalence/equivalence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/host_values.h"
#include "ops/analysis/values/constant_factors.h"
#include "ops/analysis/values/rank_shares.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/verifier/equivalence/low_rank_gradients.h"

namespace weft {
namespace {

// The persistable variables of a program, of all blocks. They share one scope: those of one name
// are one variable.
class PersistableVars {
 public:
  explicit PersistableVars(const Program& program) : program_(program) {
    for (int block = 1; block < program.num_blocks(); ++block) {
      for (VarId var : program.block(block).vars()) {
        if (program.var(var).persistable()) inner_[program.var(var).name()].push_back(var);
      }
    }
  }

  // Those that inner blocks declare.
  const std::map<absl::string_view, std::vector<VarId>>& inner() const { return inner_; }

  std::vector<VarId> Of(absl::string_view name) const {
    std::vector<VarId> all;
    const VarId root = program_.block(0).FindVar(name);
    if (root.valid() && program_.var(root).persistable()) all.push_back(root);
    const auto found = inner_.find(name);
    if (found != inner_.end()) all.insert(all.end(), found->second.begin(), found->second.end());
    return all;
  }

 private:
  const Program& program_;
  std::map<absl::string_view, std::vector<VarId>> inner_;
};

// The symbol in `program` of a name of the original. Programs share the memory of names if one is
// made of the other; then looking it up takes no hash.
Symbol SymbolIn(const Program& program, const Program& original, Symbol name) {
  const absl::string_view text = original.name(name);
  const bool is_shared = name.value() < program.symbols().size() &&
                         program.name(name).data() == text.data() &&
                         program.name(name).size() == text.size();
  return is_shared ? name : program.FindSymbol(text);
}

bool IsAnyWritten(const RankValues& values, absl::Span<const VarId> vars) {
  return std::any_of(vars.begin(), vars.end(), [&](VarId var) { return values.IsWritten(var); });
}

// What the feed variable of the original is in the rewritten program; empty: the same.
std::string FoundAs(const Var& original, const Program& rewritten) {
  const VarId id = rewritten.block(0).FindVar(original.name());
  if (!id.valid()) return "no such variable";
  const Var var = rewritten.var(id);
  if (!var.need_check_feed()) return "one without need_check_feed";
  if (var.persistable() != original.persistable()) {
    return var.persistable() ? "a persistable one" : "one that is not persistable";
  }
  const absl::optional<TensorType> expected = DeclaredType(original), found = DeclaredType(var);
  if (!expected.has_value() || !found.has_value() || expected->dtype == found->dtype) return "";
  return absl::StrCat("one of type ", DTypeName(found->dtype), " instead of ",
                      DTypeName(expected->dtype));
}

}  // namespace

ComparedVariables::ComparedVariables(const ProgramFacts& facts,
                                     const std::set<std::string>& distributed_params)
    : original_(facts.program()), kinds_(original_.symbols().size(), 0) {
  const Program& original = original_;
  const auto is_no_param = [&](Symbol name) {
    kinds_[name.value()] &= static_cast<uint8_t>(~kParam);
  };
  const std::vector<ParamUpdate>& updates = facts.Get(FindUpdates);
  for (const Var& var : AllVars(original)) {
    if (var.is_parameter()) Add(kParam, var.name_symbol());
  }
  for (const ParamUpdate& update : updates) {
    for (Symbol state : update.states) is_no_param(state);
  }
  for (Symbol statistic : facts.Get(FindRunningStatistics)) is_no_param(statistic);
  for (Symbol param : facts.Get(FindTrainedByHand)) Add(kParam, param);
  absl::flat_hash_set<Symbol> read;
  for (const Op& op : BlockOps(original, 0)) {
    read.insert(op.input_args().begin(), op.input_args().end());
    if (!IsLossGrad(op)) continue;
    for (Symbol name : op.output_args()) {
      if (!read.contains(name)) Add(kLossGradient, name);
    }
  }
  for (const std::string& name : distributed_params) {
    const Symbol param = original.FindSymbol(name);
    if (!param.valid()) continue;
    Add(kDistributed, param);
    Add(kSkipped, param);
  }
  for (const ParamUpdate& update : updates) {
    if (Is(kDistributed, update.param)) {
      for (Symbol state : update.states) Add(kSkipped, state);
      continue;
    }
    Add(kParam, update.param);
    Add(kOptimized, update.param);
    if (update.master.valid()) Add(kParam, update.master);
  }
}

EquivalenceChecker::EquivalenceChecker(const Comparison& given, Findings* findings)
    : given_(given),
      findings_(*findings),
      reporter_(given.ref, findings),
      variables_(given.of_original, given.values.setting.distributed_params),
      averaging_(rewritten_, given.values.setting.averaging, &table_),
      outer_updates_(given.original, given.rewritten, given.values, &table_) {}

void EquivalenceChecker::Check(const RankValues& after, size_t first_op) {
  const Program& original = *original_.main;
  is_whole_ = first_op == 0;
  after_ = &after;
  FindShares();
  averaging_.FindBranches(after);
  outer_updates_.FindStates(after);
  CheckStartup();
  if (is_whole_ || first_op < original.block(0).ops().size()) {
    RankValuesOptions one;
    one.is_one_device = true;
    one.table = &table_;
    one.first_expression = first_op;
    before_ = RankValues::Of(given_.of_original, one);
  }
  CheckData();
  // Parameters first: states may be averaged when parameters are.
  for (const bool params : {true, false}) {
    for (VarId var : original.block(0).vars()) {
      if (!original.var(var).persistable()) continue;
      const Symbol name = original.var(var).name_symbol();
      if (variables_.IsSkipped(name)) continue;
      if (variables_.IsParam(name) == params) CheckVariable(var);
    }
  }
  CheckShares();
  CheckInnerVariables();
  CheckFetches();
  CheckAveragedInTurn();
  ReportResets();
  NoteFactorsOfOne();
}

namespace {

// By factor: the ops that multiply by a number that is not 1, and counts as such.
std::map<double, std::vector<OpId>> FactorsOfOne(const Program& program) {
  const SignatureTable signatures(program);
  ConstantFactors factors(program, signatures, absl::nullopt);
  std::map<double, std::vector<OpId>> found;
  for (const Op& op : AllOps(program)) {
    const absl::optional<ConstantFactors::Factor> factor = factors.Of(op);
    if (!factor.has_value() || !SameFactor(factor->value, 1)) continue;
    // As it stands there, and not the fraction that it stands for.
    const double value = factor->constant < 0 ? op.FloatAttr("scale").value_or(1) : factor->value;
    if (value != 1) found[value].push_back(op.id());
  }
  return found;
}

}  // namespace

void EquivalenceChecker::NoteFactorsOfOne() {
  std::map<double, std::vector<OpId>> before = FactorsOfOne(*original_.main);
  Reporter reporter(given_.ref, &findings_);
  const auto note = [&](const Program& program, OpId id, double factor, absl::string_view where) {
    const Op op = program.op(id);
    const Symbol out = op.output_args()[0];
    reporter.Add(
        "W614", &program == rewritten_.main ? id : OpId(), program.name(out),
        absl::StrCat(where, op.DebugName(), " multiplies by ", absl::StrFormat("%.9g", factor),
                     ", which counts as 1: in a state, it adds up over the steps, to ",
                     absl::StrFormat("%.6g", std::pow(factor, 1e6)), " in a million"));
  };
  for (const auto& [factor, ops] : FactorsOfOne(*rewritten_.main)) {
    std::vector<OpId>& known = before[factor];
    for (size_t i = known.size(); i < ops.size(); ++i) note(*rewritten_.main, ops[i], factor, "");
    known.erase(known.begin(), known.begin() + std::min(known.size(), ops.size()));
  }
  for (const auto& [factor, ops] : before) {
    for (OpId id : ops) note(*original_.main, id, factor, "here, nothing does: in the original, ");
  }
}

void EquivalenceChecker::CheckAveragedInTurn() {
  if (averaged_in_turn_.empty()) return;
  const absl::flat_hash_map<ExprId, std::string> problems = averaging_.ProblemsInTurn(conditions_);
  for (const auto& [name, condition] : averaged_in_turn_) {
    const std::string& problem = problems.at(condition);
    if (!problem.empty()) Report("W605", name, problem);
  }
}

// Persistable variables that an inner block of one of the programs declares.
void EquivalenceChecker::CheckInnerVariables() {
  const PersistableVars expected(*original_.main), found(*rewritten_.main);
  std::set<absl::string_view> names;
  for (const auto& [name, vars] : expected.inner()) names.insert(name);
  for (const auto& [name, vars] : found.inner()) names.insert(name);
  for (absl::string_view name : names) {
    if (variables_.IsSkipped(name)) continue;
    const std::vector<VarId> of_original = expected.Of(name), of_rewritten = found.Of(name);
    const bool is_inner = expected.inner().count(name) > 0;
    if (of_original.size() == 1 && of_rewritten.size() == 1) {
      // CheckVariable has compared those that the original declares in its root block.
      if (is_inner) CompareWritten(name, of_original[0], of_rewritten[0]);
    } else if (is_inner && of_rewritten.empty()) {
      Report("W603", name, "it is persistable in the original, but not here");
    } else if (!of_original.empty() &&
               (IsAnyWritten(before_, of_original) || IsAnyWritten(*after_, of_rewritten))) {
      Report("W607", name,
             "several blocks declare it as persistable, so that its value cannot be followed");
    }
  }
}

// Reads what the startup program leaves. Every persistable variable must begin as in the original.
// States that the rewrite adds begin with a value before an op of the step reads them.
void EquivalenceChecker::CheckAddedStates() {
  const Program& main = *rewritten_.main;
  Reporter reporter(given_.ref, &findings_);
  std::set<Symbol> known;  // written or reported
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    for (Symbol in : op.input_args()) {
      const VarId var = main.block(0).Resolve(in);
      if (!var.valid() || !main.var(var).persistable()) continue;
      const absl::string_view name = main.name(in);
      if (original_.main->block(0).FindVar(name).valid()) continue;
      if (startup_values_.contains(name) || !known.insert(in).second) continue;
      reporter.Add("W606", id, name,
                   absl::StrCat(op.DebugName(), " reads variable ", name,
                                ": expected an initial value, found nothing"));
    }
    known.insert(op.output_args().begin(), op.output_args().end());
  }
}

void EquivalenceChecker::CheckStartup() {
  if (rewritten_.startup == nullptr) return;
  RankValuesOptions many = options_;
  many.table = &table_;
  startup_values_ = ReadStartupValues(*rewritten_.startup, many);
  if (original_.startup == nullptr) {
    if (shares_.empty()) return;
    many.is_startup = true;  // as ReadStartupValues walks over it
    many.start = nullptr;
    many.batch = nullptr;
    Reporter reporter({given_.ref.rank, /*is_startup=*/true}, &findings_);
    CheckSharesAtStart(*rewritten_.startup, RankValues::Of(*rewritten_.startup, many), &reporter);
    return;
  }
  CheckAddedStates();
  const Program& original = *original_.startup;
  RankValuesOptions one;
  one.is_one_device = true;
  one.is_startup = true;
  one.table = &table_;
  const RankValues before = RankValues::Of(original, one);
  Reporter reporter({given_.ref.rank, /*is_startup=*/true}, &findings_);
  for (VarId var : original.block(0).vars()) {
    const absl::string_view name = original.var(var).name();
    if (!original.var(var).persistable() || !before.IsWritten(var)) continue;
    if (variables_.IsSkipped(name)) continue;
    const auto value = startup_values_.find(name);
    const RankValue& expected = before.AtEnd(var);
    if (value == startup_values_.end() && is_shared_.contains(name)) continue;
    if (value == startup_values_.end()) {
      reporter.Add("W606", OpId(), name,
                   absl::StrCat("variable ", name, ": expected ", table_.ToString(expected.expr),
                                " when training begins, found nothing"));
      continue;
    }
    RankValue found = value->second;
    // The draw of one rank is as good as that of one device; the draws of all are something else.
    const bool is_of_one = found.placement == RankValue::Placement::kRankSubset;
    // What another rank broadcasts is in the program of that rank.
    if (is_of_one && options_.setting.rank.has_value() && found.rank >= 0 &&
        found.rank != *options_.setting.rank) {
      continue;
    }
    if (found.placement == RankValue::Placement::kGathered) found.expr = PlacedExpr(found, &table_);
    const bool has_factor = expected.is_zero || SameFactor(found.factor, expected.factor);
    if (found.expr == expected.expr && has_factor) continue;
    const ExpressionTable::Difference difference = table_.FindDifference(expected.expr, found.expr);
    reporter.Add("W606", OpId(), name,
                 absl::StrCat("variable ", name, ": expected ", difference.a,
                              " when training begins, found ", difference.b));
  }
  CheckSharesAtStart(original, before, &reporter);
}

void EquivalenceChecker::FindShares() {
  const Setting& setting = given_.values.setting;
  shares_.clear();
  for (const auto& [variable, tensors] : setting.shares) {
    for (size_t i = 0; i < tensors.size(); ++i) shares_.push_back({variable, tensors[i].name, i});
  }
  for (const auto& [variable, names] : setting.common) {
    for (size_t i = 0; i < names.size(); ++i) shares_.push_back({variable, names[i], i});
  }
  for (const Shared& shared : shares_) is_shared_.insert(shared.name);
}

bool EquivalenceChecker::HoldsShare(absl::string_view variable, const RankValue& value) {
  const Setting& setting = given_.values.setting;
  const auto share = setting.shares.find(std::string(variable));
  if (share == setting.shares.end()) {
    return value.placement == RankValue::Placement::kReplicated;
  }
  if (value.is_zero) return true;
  const bool is_part = options_.IsOneRank() || value.placement == RankValue::Placement::kShard;
  const absl::Span<const ExprId> values = table_.ValuesOf(value.expr);
  return is_part && !values.empty() &&
         table_.Several(LayoutOf(share->second), values) == value.expr;
}

std::string EquivalenceChecker::WhyNoShare(absl::string_view variable) const {
  const Setting& setting = given_.values.setting;
  const Program& original = *original_.main;
  const auto type_of = [](const Program& program, absl::string_view name) {
    const VarId id = program.block(0).FindVar(name);
    return id.valid() ? DeclaredType(program.var(id)) : absl::nullopt;
  };
  const absl::optional<TensorType> found = type_of(*rewritten_.main, variable);
  const VarId id = rewritten_.main->block(0).FindVar(variable);
  if (!found.has_value() || !rewritten_.main->var(id).persistable()) {
    return "it is no persistable tensor";
  }
  const auto differs = [&](const std::string& name, const TensorType& expected) {
    const absl::optional<TensorType> of_original = type_of(original, name);
    if (!of_original.has_value() || *of_original == expected) return std::string();
    return absl::StrCat(name, " is ", ToString(*of_original), " in the original, not ",
                        ToString(expected));
  };
  const auto share = setting.shares.find(std::string(variable));
  if (share == setting.shares.end()) {
    if (NumElements(found->dims) != 1) return "it has several elements";
    for (const std::string& name : setting.common.at(std::string(variable))) {
      std::string difference = differs(name, *found);
      if (!difference.empty()) return difference;
    }
    return "";
  }
  int64_t elements = 0;
  for (const SharedTensor& tensor : share->second) {
    const Dims dims(tensor.dims.begin(), tensor.dims.end());
    elements += NumElements(dims);
    std::string difference = differs(tensor.name, {found->dtype, dims});
    if (!difference.empty()) return difference;
  }
  const Dims expected = {elements / setting.nranks.value_or(1)};
  if (found->dims == expected) return "";
  return absl::StrCat("it has dimensions ", DimsToString(found->dims), ", not ",
                      DimsToString(expected));
}

// What ranks together have in a share is what one device has: in the first step, and, if a step
// begins so, in the next one. Without the original's startup program, what the rewritten one itself
// makes of the variable.
void EquivalenceChecker::CheckSharesAtStart(const Program& startup, const RankValues& whole,
                                            Reporter* reporter) {
  const bool is_original = &startup == original_.startup;
  auto value = startup_values_.end();
  bool is_share = false;
  for (const Shared& shared : shares_) {
    if (shared.index == 0) {  // of another variable
      value = startup_values_.find(shared.variable);
      is_share = value != startup_values_.end() && HoldsAtStart(shared.variable, value->second);
    }
    const VarId var = startup.block(0).FindVar(shared.name);
    const bool is_known =
        var.valid() && whole.IsWritten(var) && (startup.var(var).persistable() || !is_original);
    if (is_original && !is_known) continue;
    RankValue found;
    if (value != startup_values_.end()) found = ValueOf(value->second, shared.index, &table_);
    std::string expected = shared.name.empty() ? "padding" : std::string(shared.name);
    bool is_expected = true;
    if (is_known) {
      const RankValue& of_whole = whole.AtEnd(var);
      is_expected = found.expr == of_whole.expr &&
                    (of_whole.is_zero || SameFactor(found.factor, of_whole.factor));
      absl::StrAppend(&expected, ", ", table_.ToString(of_whole.expr));
    }
    // What rank 0 gives to all is in the program of that rank.
    const bool is_given = found.expr == ValueOfRank(0, shared.name, &table_) && found.factor == 1;
    if (is_share && (is_expected || is_given)) continue;
    reporter->Add("W606", OpId(), shared.variable,
                  absl::StrCat("variable ", shared.variable, ": expected, for ", expected,
                               " when training begins, found ",
                               value == startup_values_.end()
                                   ? "nothing"
                                   : absl::StrCat(table_.ToString(found.expr), ", ",
                                                  ToString(value->second.placement))));
  }
}

// What rank 0 has drawn is as good as what one device has.
bool EquivalenceChecker::HoldsAtStart(absl::string_view variable, RankValue value) {
  const bool is_common = given_.values.setting.common.count(std::string(variable)) > 0;
  if (is_common) return value.IsEqualOnRanks();
  return HoldsShare(variable, value);
}

void EquivalenceChecker::CheckShares() {
  const Program& original = *original_.main;
  std::string why;
  RankValue several;
  VarId share;
  for (const Shared& shared : shares_) {
    if (shared.index == 0) {  // of another variable
      why = WhyNoShare(shared.variable);
      if (why.empty()) {
        share = rewritten_.main->block(0).FindVar(shared.variable);
        several = after_->AtEnd(share);
        // Nobody has written it.
        if (!several.expr.valid() && !several.is_zero) {
          several.expr = InitialOfShare(shared.variable, given_.values.setting, &table_);
        } else if (!HoldsShare(shared.variable, several)) {
          why = absl::StrCat("after a step, it is ", ToString(several.placement), ": ",
                             table_.ToString(several.expr, 2));
        }
      }
      if (!why.empty()) {
        Report("W603", shared.variable,
               absl::StrCat("the setting says that it holds ", shared.name, "; ", why));
      }
    }
    if (!why.empty()) continue;
    const VarId var = original.block(0).FindVar(shared.name);
    if (!var.valid() || !original.var(var).persistable()) continue;
    RankValue found = ValueOf(several, shared.index, &table_);
    found.placement = RankValue::Placement::kReplicated;
    Compare({shared.name, before_.AtEnd(var), found, share});
  }
}

// The rewritten program must have the feed variables of the original, and its schedules.
void EquivalenceChecker::CheckData() {
  for (VarId id : original_.main->block(0).vars()) {
    const Var var = original_.main->var(id);
    if (!var.need_check_feed()) continue;
    const std::string found = FoundAs(var, *rewritten_.main);
    if (found.empty()) continue;
    reporter_.Add("W608", OpId(), var.name(),
                  absl::StrCat("variable ", var.name(),
                               ": expected a feed variable, as in the original, found ", found));
  }
  for (const auto& [name, expected, found] : CompareHostValues(*original_.main, *rewritten_.main)) {
    const VarId var = original_.main->block(0).FindVar(name);
    if (original_.main->var(var).need_check_feed()) continue;  // W608
    reporter_.Add("W602", OpId(), name,
                  absl::StrCat("variable ", name, ": before each step, the host ", found,
                               "; in the original, it ", expected));
  }
}

void EquivalenceChecker::CheckVariable(VarId var) {
  const absl::string_view name = original_.main->var(var).name();
  const VarId other = rewritten_.main->block(0).FindVar(
      SymbolIn(*rewritten_.main, *original_.main, original_.main->var(var).name_symbol()));
  const bool is_whole = other.valid() && rewritten_.main->var(other).persistable();
  const bool is_common = given_.values.setting.common.count(std::string(name)) > 0;
  if ((!is_whole || is_common) && is_shared_.contains(name)) return;  // CheckShares
  if (!other.valid()) {
    if (before_.IsWritten(var) || !is_whole_)
      Report("W603", name, "the rewritten program does not have it");
    return;
  }
  if (!rewritten_.main->var(other).persistable()) {
    return Report("W603", name, "it is persistable in the original, but not here");
  }
  CompareWritten(name, var, other);
}

void EquivalenceChecker::CompareWritten(absl::string_view name, VarId var, VarId other) {
  if (is_whole_ && !before_.IsWritten(var) && !after_->IsWritten(other)) return;
  Compare({name, before_.AtEnd(var), after_->AtEnd(other), other});
}

void EquivalenceChecker::Compare(Compared values) {
  auto& [name, expected, found, other] = values;
  // Most variables are unchanged in both programs and need no expression.
  if (expected.expr.valid() || found.expr.valid() || found.IsOfSomeRanks()) {
    expected = WithExpr(expected, name);
    found = WithExpr(found, name);
  }
  // The value of one rank is not what one device computes, although all ranks have it.
  if (found.IsOfSomeRanks()) found.expr = PlacedExpr(found, &table_);
  // An accumulated local gradient may be divided if it always is and begins with 0.
  if (!found.IsEqualOnRanks()) {
    const RankValue start = after_->AtStart(other);
    if (!start.IsEqualOnRanks() && start.is_gradient && BeginsWithZero(name)) {
      found.factor /= start.factor;
    }
  }
  // What counts as the n-th part is the gradient itself.
  if (after_->sum_gradients().count(std::string(name)) > 0) found.factor *= options_.RankFactor();
  const bool has_factor = SameFactor(found.factor, expected.factor);
  if (expected.expr == found.expr && (expected.is_zero || has_factor)) {
    if (found.IsEqualOnRanks() || !variables_.IsParam(name)) return;
    // Equal updates of a parameter that begins with different values: W317.
    if (DiffersAtStart(name) && variables_.HasOptimizer(name)) return;
    return Report("W604", name,
                  absl::StrCat("it is ", ToString(found.placement),
                               " after a step: each rank updates it by its own batch"));
  }
  // The gradient of an activation has a row for each sample of the rank, as layer 7 says. What one
  // device has there is the n-th part of what the rank's own loss gives, which has fewer samples.
  const bool is_of_activation = found.placement == RankValue::Placement::kLocal &&
                                found.is_gradient && !found.is_summed && !variables_.IsParam(name);
  if (expected.expr == found.expr && is_of_activation &&
      SameFactor(found.factor * options_.RankFactor(), expected.factor)) {
    return;
  }
  // It is a factor 1/n of that of one device, as ranks add up gradients.
  if (expected.expr == found.expr && found.IsEqualOnRanks() && variables_.IsLossGradient(name) &&
      after_->sum_gradients().count(std::string(name)) == 0 &&
      SameFactor(found.factor * options_.RankFactor(), expected.factor)) {
    return;
  }
  expected = WithExpr(expected, name);
  found = WithExpr(found, name);
  if (outer_updates_.outer().HasState() && variables_.IsParam(name)) return CheckOuter(values);
  begins_anew_ = false;
  const bool is_averaged = has_factor && IsAveraged(found, found.expr, expected.expr, name);
  // Zeros equal any multiple of themselves, so BeginsAnew ignores the factor.
  if ((is_averaged || BeginsAnew(found.expr, ExprId(), name)) && CheckAveraged(values)) {
    // What one device never changes begins with the same value in every step; what it changes is
    // known if expressions cover the whole program.
    const bool is_changed = !is_whole_ || expected.expr != table_.Initial(name);
    if (begins_anew_ && is_changed) resets_.push_back(name);
    return;
  }
  ReportDifference(values);
}

// Whether ranks begin training with different values: at the start of any step they may differ by
// what an earlier step did.
bool EquivalenceChecker::DiffersAtStart(absl::string_view name) const {
  if (options_.start == nullptr) return false;
  const auto value = options_.start->find(name);
  return value != options_.start->end() && !value->second.IsEqualOnRanks();
}

bool EquivalenceChecker::CheckAveraged(const Compared& values) {
  const ExprId found = values.found.expr;
  const ExprId condition = table_.IsSelect(found) ? table_.Operands(found)[0] : ExprId();
  ExprId in_groups;
  if (averaging_.HasGroups() && condition.valid()) {
    const ExprId else_ = table_.Operands(found)[2];
    if (table_.IsSelect(else_)) in_groups = table_.Operands(else_)[0];
  }
  // A state may be averaged or reset when parameters are averaged.
  if (!variables_.IsParam(values.name)) {
    return averaged_on_.contains(condition) &&
           (!averaging_.HasGroups() || averaged_in_groups_on_.contains(in_groups));
  }
  averaged_in_groups_on_.insert(in_groups);
  if (averaged_on_.insert(condition).second) conditions_.push_back(condition);
  if (averaging_.AreJudgedTogether()) {
    averaged_in_turn_.emplace_back(values.name, condition);
    return true;
  }
  const std::string problem = averaging_.Problem(condition, is_whole_ ? after_ : nullptr);
  if (!problem.empty()) Report("W605", values.name, problem);
  if (averaging_.HasGroups()) {
    const std::string of_groups = averaging_.ProblemOfGroups(in_groups);
    if (!of_groups.empty()) Report("W605", values.name, of_groups);
  }
  return true;
}

void EquivalenceChecker::CheckOuter(const Compared& values) {
  const ExprId expected = table_.Scaled(values.expected.expr, values.expected.factor);
  OuterUpdates::Synchronized param;
  param.value = table_.Scaled(values.found.expr, values.found.factor);
  param.local = expected;
  if (table_.IsSelect(values.found.expr)) {
    const absl::Span<const ExprId> operands = table_.Operands(values.found.expr);
    const ExprId yes = operands[1], no = operands[2];
    param.condition = operands[0];
    // Between two synchronizations.
    param.local = table_.Scaled(no, values.found.factor);
    const bool is_local =
        param.local == expected || (SameFactor(values.found.factor, values.expected.factor) &&
                                    IsAveragedInGroups(no, values.expected.expr));
    if (!is_local) return ReportDifference(values);
    param.value = table_.Scaled(yes, values.found.factor);
  }
  // A parameter with master weights is cast from them. Factors are outside of casts.
  const ExpressionTable::Term value = table_.Unscaled(param.value),
                              local = table_.Unscaled(param.local);
  const bool is_cast = table_.IsCast(value.expr) && table_.IsCast(local.expr) &&
                       table_.OperationOf(value.expr) == table_.OperationOf(local.expr);
  if (is_cast) {
    param.value = table_.Scaled(table_.Operands(value.expr)[0], value.factor);
    param.local = table_.Scaled(table_.Operands(local.expr)[0], local.factor);
  }
  param.rate = RateOf(values.name);
  const OuterUpdates::Result result = outer_updates_.Check(param);
  if (!result.problem.empty()) {
    return Report(
        "W613", values.name,
        absl::StrCat("outer optimizer ", ToString(outer_updates_.outer()), ": ", result.problem));
  }
  if (!result.gradient.empty()) {
    const std::string problem = averaging_.ProblemOfLaunch(result.launched_on, param.condition);
    if (!problem.empty()) Report("W605", values.name, problem);
  }
  if (!is_cast) CheckStartOfOuter(values.name, result);
  CheckAveraged(values);
}

// The states begin with the parameter and with 0.
void EquivalenceChecker::CheckStartOfOuter(absl::string_view param,
                                           const OuterUpdates::Result& states) {
  if (startup_values_.empty()) return;
  Reporter reporter({given_.ref.rank, /*is_startup=*/true}, &findings_);
  const auto expected = startup_values_.find(param);
  const auto found = startup_values_.find(states.last);
  if (expected != startup_values_.end() && found != startup_values_.end()) {
    const RankValue &a = expected->second, &b = found->second;
    const bool is_same = a.expr == b.expr && SameFactor(a.factor, b.factor) &&
                         a.placement == b.placement && a.rank == b.rank;
    if (!is_same) {
      reporter.Add(
          "W606", OpId(), states.last,
          absl::StrCat("variable ", states.last, ": expected the value of ", param, ", ",
                       table_.ToString(PlacedExpr(a, &table_)), ", ", ToString(a.placement),
                       ", when training begins, found ", table_.ToString(PlacedExpr(b, &table_)),
                       ", ", ToString(b.placement)));
    }
  }
  for (const std::string& state : {states.velocity, states.error}) {
    if (state.empty() || BeginsWithZero(state)) continue;
    reporter.Add(
        "W606", OpId(), state,
        absl::StrCat("variable ", state, ": expected 0 when training begins, found another value"));
  }
}

// Invalid: no optimizer with a learning rate updates it.
ExprId EquivalenceChecker::RateOf(absl::string_view param) {
  const Program& original = *original_.main;
  if (!rate_of_.has_value()) {
    rate_of_.emplace();
    for (const ParamUpdate& update : given_.of_original.Get(FindUpdates)) {
      const absl::Span<const Symbol> rates = original.op(update.op).Input("LearningRate");
      if (rates.empty()) continue;
      rate_of_->emplace(update.param, rates[0]);
      if (update.master.valid()) rate_of_->emplace(update.master, rates[0]);
    }
  }
  const auto found = rate_of_->find(original.FindSymbol(param));
  if (found == rate_of_->end()) return ExprId();
  const VarId var = original.block(0).FindVar(found->second);
  if (!var.valid()) return ExprId();
  const RankValue rate = WithExpr(before_.AtEnd(var), original.name(found->second));
  return table_.Scaled(rate.expr, rate.factor);
}

namespace {

// By what `found` must be divided to be `expected`, where they differ in one place by a factor
// alone; 1: they do not.
double FactorBetween(const ExpressionTable& table, ExprId expected, ExprId found) {
  for (;;) {
    const auto a = table.Unscaled(expected), b = table.Unscaled(found);
    if (a.expr == b.expr) return a.factor == 0 ? 1 : b.factor / a.factor;
    if (table.OperationOf(expected) != table.OperationOf(found)) return 1;
    const absl::Span<const ExprId> of_a = table.Operands(expected), of_b = table.Operands(found);
    if (of_a.size() != of_b.size()) return 1;
    size_t different = of_a.size();
    for (size_t i = 0; i < of_a.size(); ++i) {
      if (of_a[i] == of_b[i]) continue;
      if (different != of_a.size()) return 1;
      different = i;
    }
    if (different == of_a.size()) return 1;
    expected = of_a[different];
    found = of_b[different];
  }
}

// "; it is 8 times the reference: 4 ranks x 2, as of accumulated steps", if the factor is a whole
// number or one by it.
std::string FactorText(double factor, int nranks) {
  const bool is_part = std::abs(factor) < 1;
  const double number = is_part ? 1 / factor : factor;
  const double whole = std::round(number);
  if (whole < 2 || !SameFactor(number, whole)) return "";
  std::string text = absl::StrCat("; it is ", is_part ? "1/" : "", whole,
                                  is_part ? " of" : " times", " the reference");
  if (nranks < 2 || std::fmod(whole, nranks) != 0) return text;
  const double rest = whole / nranks;
  absl::StrAppend(&text, ": ", nranks, " ranks");
  if (rest == nranks) absl::StrAppend(&text, " x ", nranks, " ranks");
  if (rest > 1 && rest != nranks) {
    absl::StrAppend(&text, " x ", rest, is_part ? "" : ", as of accumulated steps");
  }
  return text;
}

}  // namespace

void EquivalenceChecker::ReportDifference(const Compared& values) {
  const ExprId expected = table_.Scaled(values.expected.expr, values.expected.factor);
  const ExprId found = table_.Scaled(values.found.expr, values.found.factor);
  const ExpressionTable::Difference difference = table_.FindDifference(expected, found);
  if (difference.may_be_equal) {
    return Report(
        "W607", values.name,
        absl::StrCat("cannot decide whether ", difference.b, " is ", difference.a,
                     ", as the original has it; weft verify option:numeric compares both by "
                     "running them"));
  }
  std::string text = absl::StrCat(
      "expected ", difference.a, ", found ", difference.b, ", in ", table_.ToString(found, 1),
      FactorText(FactorBetween(table_, expected, found), options_.setting.nranks.value_or(1)));
  if (given_.expression_depth > 0) {
    absl::StrAppend(&text, "; as a whole, expected ",
                    table_.ToString(expected, given_.expression_depth), ", found ",
                    table_.ToString(found, given_.expression_depth));
  }
  Report(variables_.IsParam(values.name) ? "W601" : "W602", values.name, text);
}

RankValue EquivalenceChecker::WithExpr(RankValue value, absl::string_view name) {
  if (!value.expr.valid()) value.expr = table_.Initial(name);
  return value;
}

bool EquivalenceChecker::BeginsWithZero(absl::string_view name) const {
  // Assumed without a startup program.
  if (options_.start == nullptr && startup_values_.empty()) return true;
  const auto found = startup_values_.find(name);
  return found != startup_values_.end() && found->second.is_zero;
}

// LocalSGD: whether `found`, a part of `value`, is the mean over ranks of `expected`, always or on
// a condition (and `expected` otherwise). A state may also be reset.
bool EquivalenceChecker::IsAveraged(const RankValue& value, ExprId found, ExprId expected,
                                    absl::string_view name) {
  const absl::Span<const ExprId> operands = table_.Operands(found);
  if (table_.IsMeanOverRanks(found)) return operands[0] == expected;
  if (table_.IsSelect(found)) {
    const ExprId condition = operands[0], yes = operands[1], no = operands[2];
    if (no != expected && !IsAveragedInGroups(no, expected)) return false;
    // The mean over ranks of a value that is linear in gradients is what one device computes.
    if (yes == expected) return value.averaged_across_ranks;
    // Only one condition is checked.
    if (table_.IsSelect(yes)) return false;
    return IsAveraged(value, yes, expected, name) || BeginsAnew(yes, condition, name);
  }
  if (BeginsAnew(found, ExprId(), name)) return true;
  // A parameter with master weights is cast from them.
  if (table_.IsCast(found)) {
    return table_.OperationOf(found) == table_.OperationOf(expected) &&
           IsAveraged(value, operands[0], table_.Operands(expected)[0], name);
  }
  // A sum of means and replicated values.
  double factor = 1;
  return value.averaged_across_ranks && table_.WithoutMeans(found, &factor) == expected &&
         SameFactor(factor, 1);
}

// Whether `found` is the mean over the groups of the schedule on a condition, and `expected`
// otherwise.
bool EquivalenceChecker::IsAveragedInGroups(ExprId found, ExprId expected) {
  if (!table_.IsSelect(found)) return false;
  ExprId mean = table_.Operands(found)[1], local = table_.Operands(found)[2];
  if (local != expected) return false;
  // A parameter with master weights is cast from them.
  if (table_.IsCast(mean) && table_.IsCast(local) &&
      table_.OperationOf(mean) == table_.OperationOf(local)) {
    mean = table_.Operands(mean)[0];
    local = table_.Operands(local)[0];
  }
  return averaging_.HasGroups() && mean == table_.MeanOverGroups(local, averaging_.group_size());
}

// Whether a state is reset to its initial value when parameters are averaged: on `condition`
// (invalid: in every step).
bool EquivalenceChecker::BeginsAnew(ExprId found, ExprId condition, absl::string_view name) {
  if (variables_.IsParam(name) || !averaged_on_.contains(condition)) return false;
  const auto initial = startup_values_.find(name);
  if (initial == startup_values_.end() || initial->second.expr != found) return false;
  begins_anew_ = true;
  return true;
}

// One finding for all states that begin anew.
void EquivalenceChecker::ReportResets() {
  if (resets_.empty()) return;
  reporter_.Add("W609", LastWriter(resets_[0]), resets_,
                absl::StrCat(StatesText(resets_),
                             " is reset to its initial value where parameters are averaged; one "
                             "device keeps it, so that what follows from it differs, too"));
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

void CheckEquivalence(const Comparison& given, Findings* findings) {
  EquivalenceChecker checker(given, findings);
  RankValuesOptions many = given.values;
  many.table = checker.table();
  TakeWholeGradients(given.of_rewritten, many);
  checker.Check(RankValues::Of(given.of_rewritten, many));
}

Equivalence::Equivalence(Comparison given)
    : given_(std::move(given)),
      prefix_(*given_.original.main, given_.of_rewritten),
      rest_(given_, &of_rest_) {}

void Equivalence::AttachTo(RankValuesOptions* options) {
  given_.values.batch = options->batch;
  options->table = rest_.table();
  options->first_expression = prefix_.program_ops();
  options->original_ops = &prefix_.kept();
  TakeWholeGradients(given_.of_rewritten, *options);
}

bool Equivalence::IsShownBy(const RankValues& after) {
  if (!prefix_.IsConfirmedBy(after)) return false;
  rest_.Check(after, prefix_.original_ops());
  return of_rest_.all().empty();
}

void Equivalence::Check(const RankValues& after, Findings* findings) {
  if (!IsShownBy(after)) CheckEquivalence(given_, findings);
}

}  // namespace weft
