#include "executor/run/run_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/plan/run_checks.h"

namespace weft {
namespace {

bool HaveSameBits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         (a.bytes() == 0 || a.raw() == b.raw() || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

absl::Status CheckType(const StateVariable& variable, const Plan& plan, const Tensor& tensor) {
  const absl::optional<TensorType>& declared = plan.variables[variable.variable].declared;
  if (!declared.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", variable.name, ": the program does not declare it as a tensor"));
  }
  if (tensor.dtype() == declared->dtype && FitsDeclared(tensor.dims(), declared->dims)) {
    return absl::OkStatus();
  }
  const TensorType found = {tensor.dtype(), tensor.dims()};
  return absl::InvalidArgumentError(absl::StrCat("variable ", variable.name, ": expected ",
                                                 ToString(*declared), ", found ", ToString(found)));
}

}  // namespace

absl::StatusOr<std::vector<StateVariable>> StateOf(const Plan& plan,
                                                   const std::vector<int>& carried) {
  std::vector<StateVariable> state;
  std::set<std::string> names;
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Plan::Variable& variable = plan.variables[v];
    if (!variable.persistable) continue;
    if (variable.is_array && variable.is_written) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable ", variable.name,
                       " is persistable and an array of tensors, which a checkpoint cannot hold"));
    }
    if (names.insert(variable.name).second) state.push_back({static_cast<int>(v), variable.name});
  }
  for (int v : carried) {
    state.push_back({v, absl::StrCat("@step/", v, "/", plan.variables[v].name)});
  }
  return state;
}

absl::StatusOr<RankState> ReadState(const std::vector<StateVariable>& state,
                                    absl::Span<Tensor* const> tensors) {
  RankState read;
  for (const StateVariable& variable : state) {
    const Tensor& tensor = *tensors[variable.variable];
    if (!tensor.allocated()) {
      read.unset.insert(variable.name);
      continue;
    }
    if (tensor.is_rows()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "variable ", variable.name, " holds SelectedRows, which a checkpoint cannot hold"));
    }
    WEFT_ASSIGN_OR_RETURN(read.values[variable.name], tensor.ToHost());
  }
  return read;
}

void MergeStates(std::vector<RankState> ranks, Checkpoint* checkpoint) {
  checkpoint->step = ranks[0].step;
  checkpoint->nranks = static_cast<int>(ranks.size());
  checkpoint->own.assign(ranks.size(), {});
  // Servers hold what no other rank has.
  for (size_t r = ranks.size() - checkpoint->num_servers; r < ranks.size(); ++r) {
    checkpoint->own[r] = std::move(ranks[r].values);
    ranks[r].unset.clear();
  }
  std::set<std::string> names;
  for (RankState& rank : ranks) checkpoint->random.push_back(std::move(rank.random));
  ranks.resize(ranks.size() - checkpoint->num_servers);
  for (const RankState& rank : ranks) {
    for (const auto& [name, tensor] : rank.values) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto first = ranks[0].values.find(name);
    const auto is_same = [&](const RankState& rank) {
      const auto value = rank.values.find(name);
      return value != rank.values.end() && HaveSameBits(first->second, value->second);
    };
    const bool are_same =
        first != ranks[0].values.end() && std::all_of(ranks.begin(), ranks.end(), is_same);
    if (are_same) {
      checkpoint->shared[name] = std::move(first->second);
      continue;
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto value = ranks[r].values.find(name);
      if (value != ranks[r].values.end()) checkpoint->own[r][name] = std::move(value->second);
    }
  }
  for (const RankState& rank : ranks) {
    for (const std::string& name : rank.unset) {
      if (names.count(name) == 0) checkpoint->unset.insert(name);
    }
  }
}

absl::Status CheckResume(const Checkpoint& checkpoint, const Plan& plan,
                         const std::vector<StateVariable>& state, int nranks) {
  std::map<std::string, const StateVariable*> variables;
  for (const StateVariable& variable : state) variables.emplace(variable.name, &variable);
  std::set<std::string> found = checkpoint.unset;
  std::vector<const std::map<std::string, Tensor>*> all = {&checkpoint.shared};
  const size_t num_workers = checkpoint.own.size() - checkpoint.num_servers;
  for (size_t r = 0; r < num_workers; ++r) all.push_back(&checkpoint.own[r]);
  for (const auto* values : all) {
    for (const auto& [name, tensor] : *values) {
      found.insert(name);
      const auto variable = variables.find(name);
      if (variable == variables.end()) continue;
      WEFT_RETURN_IF_ERROR(CheckType(*variable->second, plan, tensor));
    }
  }
  for (const std::string& name : found) {
    if (variables.count(name) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", name, ": the program has no persistable variable of that name"));
  }
  for (const StateVariable& variable : state) {
    if (found.count(variable.name) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "variable ", variable.name, ": the program has it, but the checkpoint does not"));
  }
  for (const std::string& random : checkpoint.random) {
    if (!random.empty()) WEFT_RETURN_IF_ERROR(ParseRandomText(random).status());
  }
  return CheckRanks(checkpoint, nranks);
}

const Tensor* FindValue(const Checkpoint& checkpoint, int rank, const std::string& name) {
  const auto shared = checkpoint.shared.find(name);
  if (shared != checkpoint.shared.end()) return &shared->second;
  if (rank >= static_cast<int>(checkpoint.own.size())) return nullptr;
  const auto own = checkpoint.own[rank].find(name);
  return own == checkpoint.own[rank].end() ? nullptr : &own->second;
}

}  // namespace weft
