#include "transpiler/verifier/communication/rank_agreement.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/host_values.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/all_ops.h"
#include "transpiler/verifier/communication/updated_parameters.h"

namespace weft {
namespace {

// The persistable variables of all blocks that ops of the program use, by name.
std::map<absl::string_view, VarId> UsedStates(const Program& program) {
  std::map<absl::string_view, VarId> used;
  for (const Op& op : AllOps(program)) {
    for (Symbol name : op.args()) {
      const VarId var = program.block(op.block()).Resolve(name);
      if (var.valid() && program.var(var).persistable()) used.emplace(program.name(name), var);
    }
  }
  return used;
}

// The last op of the program that writes the variable; invalid: none.
OpId LastWriter(const Program& program, absl::string_view name) {
  OpId last;
  const Symbol symbol = program.FindSymbol(name);
  for (const Op& op : AllOps(program)) {
    for (Symbol out : op.output_args()) {
      if (out == symbol) last = op.id();
    }
  }
  return last;
}

class AgreementChecker {
 public:
  AgreementChecker(absl::Span<const ConstProgramPair> ranks, const FeedLayouts& feeds,
                   absl::optional<int> nranks, Findings* findings, const std::vector<int>& group)
      : ranks_(ranks), findings_(findings), first_(group.empty() ? 0 : group.front()) {
    options_.setting.nranks = nranks;
    options_.group = group;
    options_.setting.feeds = feeds;
    options_.table = &table_;
    options_.names_exchanges = true;
    for (const ConstProgramPair& programs : ranks) {
      has_startup_ = has_startup_ && programs.startup != nullptr;
    }
  }

  void Check() {
    for (size_t rank = first_; rank < ranks_.size(); ++rank) {
      const std::vector<int>& group = options_.group;
      if (!group.empty() && !absl::c_binary_search(group, static_cast<int>(rank))) continue;
      const Program& main = *ranks_[rank].main;
      // The same programs give the same values.
      if (rank > first_ && AreShared(ranks_[first_], ranks_[rank])) continue;
      RankValuesOptions options = options_;
      StartupValues start;
      if (has_startup_) {
        start = ReadStartupValues(*ranks_[rank].startup, options);
        options.start = &start;
      }
      const RankValues values = RankValues::Of(main, options);
      States after;
      for (const auto& [name, var] : UsedStates(main)) {
        RankValue value = values.AtEnd(var);
        if (!values.IsWritten(var)) value = values.AtStart(var);
        if (!value.expr.valid()) value.expr = table_.Initial(name);
        after.emplace(name, value);
      }
      KeepUnused(main, &after);
      if (rank == first_) {
        first_start_ = std::move(start);
        first_after_ = std::move(after);
        continue;
      }
      if (has_startup_ && !CompareStart(rank, start, after)) continue;
      CompareSteps(rank, after);
    }
  }

 private:
  static bool AreShared(const ConstProgramPair& a, const ConstProgramPair& b) {
    return a.main == b.main && a.startup == b.startup;
  }

  enum When { kAtStart, kAfterStep };
  // Of persistable variables that a main program uses, by name.
  using States = std::map<absl::string_view, RankValue>;

  // States that rank 0 uses and another rank only declares.
  void KeepUnused(const Program& main, States* after) {
    unused_.clear();
    for (VarId id : main.block(0).vars()) {
      const absl::string_view name = main.var(id).name();
      if (!main.var(id).persistable() || first_after_.count(name) == 0) continue;
      if (after->emplace(name, Unchanged(name)).second) unused_.insert(name);
    }
  }

  RankValue Unchanged(absl::string_view name) {
    RankValue value;
    value.expr = table_.Initial(name);
    return value;
  }

  bool CompareStart(size_t rank, const StartupValues& start, const States& used) {
    bool all_agree = true;
    for (const auto& [name, value] : used) {
      if (first_after_.count(name) == 0 || unused_.count(name) > 0) continue;
      const auto found = start.find(name);
      const StartupValues::const_iterator expected = first_start_.find(name);
      const bool has_found = found != start.end(), has_expected = expected != first_start_.end();
      if (!has_found && !has_expected) continue;
      if (has_found && has_expected) {
        all_agree = Compare(rank, name, expected->second, found->second, kAtStart) && all_agree;
      } else {
        all_agree = false;
        Report(rank, name, has_expected ? table_.ToString(expected->second.expr) : "nothing",
               has_found ? table_.ToString(found->second.expr) : "nothing", kAtStart);
      }
    }
    return all_agree;
  }

  void CompareSteps(size_t rank, const States& after) {
    const Program& first = *ranks_[first_].main;
    for (const auto& [name, found] : after) {
      const auto expected = first_after_.find(name);
      if (expected != first_after_.end()) {
        Compare(rank, name, expected->second, found, kAfterStep);
        continue;
      }
      const VarId unused = first.block(0).FindVar(name);
      if (!unused.valid() || !first.var(unused).persistable()) continue;
      Compare(rank, name, Unchanged(name), found, kAfterStep);
    }
  }

  // Values that differ between ranks by the program of one of them are the matter of other layers.
  bool Compare(size_t rank, absl::string_view name, const RankValue& expected,
               const RankValue& found, When when) {
    if (!expected.IsEqualOnRanks() || !found.IsEqualOnRanks()) return true;
    if (expected.is_zero && found.is_zero) return true;
    const ExprId a = table_.Scaled(expected.expr, expected.factor);
    const ExprId b = table_.Scaled(found.expr, found.factor);
    if (a == b) return true;
    const ExpressionTable::Difference difference = table_.FindDifference(a, b);
    Report(rank, name, difference.a, difference.b, when);
    return false;
  }

  void Report(size_t rank, absl::string_view name, absl::string_view expected,
              absl::string_view found, When when) {
    const Program& program = when == kAtStart ? *ranks_[rank].startup : *ranks_[rank].main;
    Reporter({static_cast<int>(rank), when == kAtStart}, findings_)
        .Add("W510", LastWriter(program, name), name,
             absl::StrCat("variable ", name, when == kAtStart ? " begins with " : " after a step: ",
                          found, " on rank ", rank, ", ", expected, " on rank ", first_));
  }

  const absl::Span<const ConstProgramPair> ranks_;
  Findings* const findings_;
  const size_t first_;  // the rank with which others are compared
  ExpressionTable table_;
  RankValuesOptions options_;
  std::set<absl::string_view> unused_;  // by the rank that is compared
  bool has_startup_ = true;
  StartupValues first_start_;  // of rank 0, as is:
  States first_after_;
};

// Ops of two programs that read a variable by one name read what the host writes there.
void CheckHostValuesAgree(absl::Span<const ConstProgramPair> ranks, Findings* findings) {
  const Program* const first = ranks[0].main;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].main == first) continue;
    Reporter reporter({static_cast<int>(rank), false}, findings);
    for (const HostValueDifference& difference : CompareHostValues(*first, *ranks[rank].main)) {
      reporter.Add("W510", OpId(), difference.variable,
                   absl::StrCat("variable ", difference.variable, ": before each step, the host ",
                                difference.found, " on rank ", rank, "; on rank 0, it ",
                                difference.expected));
    }
  }
}

}  // namespace

void CheckStartIsEqual(const ConstProgramPair& programs, const StartupValues& start,
                       const std::set<std::string>& distributed_params, ProgramRef ref,
                       Findings* findings) {
  std::set<absl::string_view> optimized;
  const UpdatedParameters parameters(*programs.main);
  for (const ParamUpdate& update : FindUpdates(*programs.main)) {
    optimized.insert(programs.main->name(update.param));
    const Op op = programs.main->op(update.op);
    const VarId var = parameters.Of(programs.main->block(op.block()).Resolve(update.param));
    if (var.valid()) optimized.insert(programs.main->var(var).name());
  }
  Reporter report({ref.rank, /*is_startup=*/true}, findings);
  for (const auto& [name, var] : UsedStates(*programs.main)) {
    const auto value = start.find(name);
    if (value == start.end() || value->second.placement != RankValue::Placement::kLocal) continue;
    if (optimized.count(name) > 0 || distributed_params.count(std::string(name)) > 0) continue;
    const OpId writer = LastWriter(*programs.startup, name);
    report.Add("W510", writer, name,
               absl::StrCat("variable ", name, " begins with a value that each rank computes for ",
                            "itself, last written by ", programs.startup->op(writer).DebugName(),
                            ": expected a seed, or a broadcast"));
  }
}

void CheckRanksAgree(absl::Span<const ConstProgramPair> ranks, const FeedLayouts& feeds,
                     absl::optional<int> nranks, Findings* findings,
                     const std::vector<int>& group) {
  if (ranks.size() < 2 || nranks == 1) return;
  if (group.empty()) CheckHostValuesAgree(ranks, findings);
  AgreementChecker(ranks, feeds, nranks, findings, group).Check();
}

}  // namespace weft
