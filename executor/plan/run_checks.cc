#include "executor/plan/run_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/similar_name.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "proto/all_ops.h"

namespace weft {

bool FitsDeclared(const Dims& dims, const Dims& declared) {
  return dims.size() == declared.size() &&
         std::equal(dims.begin(), dims.end(), declared.begin(),
                    [](int64_t found, int64_t fixed) { return fixed == -1 || found == fixed; });
}

absl::Status CheckInitialized(const Plan& plan, const NameSet& holds_value,
                              const std::vector<int>& fed) {
  const absl::flat_hash_set<int> is_fed(fed.begin(), fed.end());
  const Plan::Variable* first = nullptr;
  int count = 0;
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Plan::Variable& variable = plan.variables[v];
    if (variable.first_reader < 0 || is_fed.contains(static_cast<int>(v))) continue;
    if (variable.persistable && holds_value.contains(variable.name)) continue;
    ++count;
    if (first == nullptr || variable.first_reader < first->first_reader) first = &variable;
  }
  if (first == nullptr) return absl::OkStatus();
  std::string message = absl::StrCat(plan.reader_names[first->first_reader], ": reads variable ",
                                     first->name, ", which nothing has written");
  if (first->persistable) {
    absl::StrAppend(&message,
                    ": it is persistable, so pass a startup program or parameters that have it");
  }
  if (count > 1) absl::StrAppend(&message, " (and ", count - 1, " more such variables)");
  return absl::FailedPreconditionError(message);
}

absl::Status CheckSynchronized(const Program& main, int nranks) {
  if (nranks == 1) return absl::OkStatus();
  if (Communicates(main)) return absl::OkStatus();
  OpTraits traits(main);
  for (const Op& op : AllOps(main)) {
    if (!traits.Has(op, Trait::kOptimizer)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), ": updates a parameter, but no op communicates, so ", nranks,
        " ranks would train ", nranks,
        " models; rewrite the program with transpile option:mode grad_allreduce (or set "
        "option:allow_unsynchronized if that is intended)"));
  }
  return absl::OkStatus();
}

absl::Status CheckParam(const Program& main, absl::string_view name, const TensorType& type) {
  const VarId id = main.block(0).FindVar(name);
  if (!id.valid() || !main.var(id).persistable()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, ": the program has no persistable variable of that name"));
  }
  const absl::optional<TensorType> declared = DeclaredType(main.var(id));
  if (!declared.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, ": the program does not declare it as a tensor"));
  }
  if (type.dtype == declared->dtype && type.kind == declared->kind &&
      FitsDeclared(type.dims, declared->dims)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("parameter ", name, ": expected ",
                                                 ToString(*declared), ", found ", ToString(type)));
}

namespace {

// A similar name, or else the losses.
std::string Suggest(const Plan& plan, absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const Plan::Variable& variable : plan.variables) names.push_back(variable.name);
  std::string similar = DidYouMean(name, names);
  if (!similar.empty() || plan.losses.empty()) return similar;
  const auto append_name = [&](std::string* text, int loss) {
    absl::StrAppend(text, plan.variables[loss].name);
  };
  return absl::StrCat("; losses of the program: ", absl::StrJoin(plan.losses, ", ", append_name));
}

}  // namespace

absl::StatusOr<std::vector<int>> ResolveFetch(const Plan& plan,
                                              const std::vector<std::string>& names) {
  if (names.empty()) return plan.losses;
  absl::flat_hash_set<int> on_servers;
  for (const Plan::PlanOp& op : plan.ops) {
    if (op.Does(ServerOp::kPull)) on_servers.insert(op.outputs.begin(), op.outputs.end());
  }
  std::vector<int> variables;
  for (const std::string& name : names) {
    const int index = plan.FindVariable(name);
    if (index == Plan::kNoVariable) {
      return absl::InvalidArgumentError(
          absl::StrCat("fetch ", name, ": the program has no such variable", Suggest(plan, name)));
    }
    const Plan::Variable& variable = plan.variables[index];
    if (!variable.declared.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("fetch ", name, ": is no tensor"));
    }
    if (!variable.is_written && !variable.is_feed && !variable.persistable) {
      return absl::InvalidArgumentError(absl::StrCat("fetch ", name, ": no op writes it"));
    }
    if (on_servers.contains(index)) {
      return absl::InvalidArgumentError(
          absl::StrCat("fetch ", name,
                       ": servers update it at the end of a step, and workers have its value from "
                       "before; option:save writes what the servers have"));
    }
    if (std::find(variables.begin(), variables.end(), index) != variables.end()) {
      return absl::InvalidArgumentError(absl::StrCat("fetch ", name, ": named twice"));
    }
    variables.push_back(index);
  }
  return variables;
}

}  // namespace weft
