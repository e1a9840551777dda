#include "transpiler/pipeline/param_attrs.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"

namespace weft {

absl::Status CheckGroup(const absl::optional<int>& nranks, RankGroup* group) {
  if (group->name.empty() || group->name.size() > kMaxGroupName) {
    return absl::InvalidArgumentError(absl::StrCat("expected a name of 1 to ", kMaxGroupName,
                                                   " bytes, found ", group->name.size()));
  }
  if (group->ranks.empty()) return absl::InvalidArgumentError("expected at least 1 rank");
  std::sort(group->ranks.begin(), group->ranks.end());
  const std::string found = absl::StrCat("found ", absl::StrJoin(group->ranks, ", "));
  if (group->ranks.front() < 0 || (nranks.has_value() && group->ranks.back() >= *nranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ranks of 0 or more",
                     nranks.has_value() ? absl::StrCat(" and below ", *nranks) : "", ", ", found));
  }
  if (std::adjacent_find(group->ranks.begin(), group->ranks.end()) != group->ranks.end()) {
    return absl::InvalidArgumentError(absl::StrCat("expected distinct ranks, ", found));
  }
  return absl::OkStatus();
}

absl::Status ResolveGroups(const Cluster& cluster, ParamAttrsByName* params) {
  std::map<std::string, RankGroup> groups;
  for (auto& [param, attrs] : *params) {
    if (!attrs.group.has_value()) continue;
    RankGroup& group = *attrs.group;
    const auto annotate = [&, param = param](absl::string_view problem) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", param, ", group '", group.name, "': ", problem));
    };
    const absl::Status status = CheckGroup(cluster.nranks(), &group);
    if (!status.ok()) return annotate(status.message());
    if (!attrs.is_replicated()) {
      return annotate(
          "expected a replicated parameter, found layerwise_parallel, in_shard or "
          "parameter_server");
    }
    if (cluster.devices().has_value()) {
      return annotate("expected one device for each trainer (option:devices)");
    }
    group.index = -1;
    const auto [known, is_new] = groups.emplace(group.name, group);
    if (!is_new && !(known->second == group)) {
      return annotate(absl::StrCat("expected ranks ", absl::StrJoin(known->second.ranks, ", "),
                                   ", as for another parameter, found ",
                                   absl::StrJoin(group.ranks, ", ")));
    }
  }
  int count = 0;
  for (auto& [name, group] : groups) {
    const bool is_all = cluster.nranks().has_value() &&
                        group.ranks.size() == static_cast<size_t>(*cluster.nranks());
    if (!is_all) group.index = count++;
  }
  for (auto& [param, attrs] : *params) {
    if (!attrs.group.has_value()) continue;
    attrs.group->index = groups[attrs.group->name].index;
    if (attrs.group->index < 0) attrs.group.reset();
  }
  return absl::OkStatus();
}

absl::Status CheckParamAttrs(const ParamAttrsByName& params, const Program& main) {
  std::set<std::string> updated;
  for (const ParamUpdate& update : FindUpdates(main)) {
    updated.insert(std::string(main.name(update.param)));
  }
  for (const auto& [param, attrs] : params) {
    const VarId var = main.block(0).FindVar(param);
    if (!var.valid()) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes of parameter ", param, ": the program has no such variable"));
    }
    if (!attrs.group.has_value() || main.var(var).is_parameter() || updated.count(param) > 0) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("attributes of parameter ", param, ", group '",
                                                   attrs.group->name,
                                                   "': expected a parameter, found a variable "
                                                   "that no optimizer updates"));
  }
  return absl::OkStatus();
}

std::vector<RankGroup> GroupsOf(const ParamAttrsByName& params) {
  std::map<int, const RankGroup*> by_index;
  for (const auto& [param, attrs] : params) {
    if (attrs.group.has_value()) by_index.emplace(attrs.group->index, &*attrs.group);
  }
  std::vector<RankGroup> groups;
  for (const auto& [index, group] : by_index) groups.push_back(*group);
  return groups;
}

}  // namespace weft
