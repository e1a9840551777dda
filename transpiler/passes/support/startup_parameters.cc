#include "transpiler/passes/support/startup_parameters.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/gradients.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

std::set<std::string> DeclaredParameters(const Program& program) {
  std::set<std::string> names;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (var.is_parameter()) names.insert(std::string(var.name()));
  }
  return names;
}

// The persistable variables that backward pairs with a gradient or that an optimizer updates, for
// files that do not mark parameters.
absl::StatusOr<std::set<std::string>> TrainedVariables(const Program& main) {
  std::set<std::string> names;
  const auto add = [&](Symbol symbol) {
    const VarId id = main.block(0).FindVar(symbol);
    if (id.valid() && main.var(id).persistable()) names.insert(std::string(main.name(symbol)));
  };
  WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> pairs, FindGradientPairs(main));
  for (const GradientPair& pair : pairs) add(pair.param);
  for (const ParamUpdate& update : FindUpdates(main)) add(update.param);
  return names;
}

// Whether ops read the variable, and none writes it: all ranks take it from one file.
bool IsGiven(const Program& main, const std::string& name) {
  const Symbol symbol = main.FindSymbol(name);
  bool is_read = false;
  for (const Op& op : AllOps(main)) {
    if (absl::c_linear_search(op.output_args(), symbol)) return false;
    is_read |= absl::c_linear_search(op.input_args(), symbol);
  }
  return is_read;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> StartupParameters(const ProgramPair& programs) {
  const Program& startup = *programs.startup;
  std::set<std::string> names = DeclaredParameters(*programs.main);
  names.merge(DeclaredParameters(startup));
  if (names.empty()) {
    WEFT_ASSIGN_OR_RETURN(names, TrainedVariables(*programs.main));
  }
  std::set<std::string> undeclared;
  for (const std::string& name : names) {
    if (!startup.block(0).FindVar(name).valid()) undeclared.insert(name);
  }
  for (const std::string& name : undeclared) {
    if (undeclared.size() < names.size() && IsGiven(*programs.main, name)) {
      names.erase(name);
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name,
                     " of the main program is not declared in the startup program: the two "
                     "programs do not belong together"));
  }
  std::vector<std::string> ordered;
  for (OpId id : startup.block(0).ops()) {
    for (Symbol symbol : startup.op(id).output_args()) {
      const auto it = names.find(std::string(startup.name(symbol)));
      if (it == names.end()) continue;
      ordered.push_back(*it);
      names.erase(it);
    }
  }
  ordered.insert(ordered.end(), names.begin(), names.end());
  return ordered;
}

std::vector<std::string> StatesThatRanksDraw(const ProgramPair& programs) {
  const Program &main = *programs.main, &startup = *programs.startup;
  std::vector<bool> is_used(main.symbols().size(), false);
  for (const Op& op : AllOps(main)) {
    for (Symbol symbol : op.args()) is_used[symbol.value()] = true;
  }
  RankValuesOptions options;
  options.is_startup = true;
  const RankValues values = RankValues::Of(startup, options);
  std::vector<std::string> drawn;
  for (VarId id : startup.block(0).vars()) {
    const Var var = startup.var(id);
    if (!var.persistable() || values.AtEnd(id).IsEqualOnRanks()) continue;
    const Symbol symbol = main.FindSymbol(var.name());
    const VarId kept = main.block(0).FindVar(var.name());
    if (!kept.valid() || !main.var(kept).persistable() || !is_used[symbol.value()]) continue;
    drawn.push_back(std::string(var.name()));
  }
  return drawn;
}

}  // namespace weft
