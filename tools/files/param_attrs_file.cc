#include "tools/files/param_attrs_file.h"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_input.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

absl::Status Expected(const std::string& param, const std::string& key, absl::string_view what,
                      const Json& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", param, ": ", key, ": expected ", what, ", found ", found.dump()));
}

absl::Status SetFlag(const std::string& param, const std::string& key, const Json& value,
                     bool* flag) {
  if (!value.is_boolean()) return Expected(param, key, "true or false", value);
  *flag = value.get<bool>();
  return absl::OkStatus();
}

absl::Status SetFactor(const std::string& param, const std::string& key, const Json& value,
                       absl::optional<double>* factor) {
  // A number of JSON is finite, unless it is too large for fp64.
  const bool fits = value.is_number() && value.get<double>() >= 0 &&
                    value.get<double>() <= std::numeric_limits<float>::max();
  if (!fits) return Expected(param, key, "a number of 0 or more that fits into fp32", value);
  *factor = value.get<double>();
  return absl::OkStatus();
}

using Groups = std::map<std::string, std::vector<int>>;

constexpr char kGroups[] = "groups";

absl::StatusOr<Groups> ParseGroups(const Json& json) {
  const auto error = [](absl::string_view where, absl::string_view what, const Json& found) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected ", what, ", found ", found.dump()));
  };
  if (!json.is_object()) return error(kGroups, "a JSON object of names and lists of ranks", json);
  Groups groups;
  for (const auto& [name, ranks] : json.items()) {
    const std::string where = absl::StrCat(kGroups, ", '", name, "'");
    if (!ranks.is_array()) return error(where, "a list of ranks", ranks);
    std::vector<int>& group = groups[name];
    for (const Json& rank : ranks) {
      const bool fits =
          rank.is_number_unsigned() &&
          rank.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int>::max());
      if (!fits) return error(where, "a rank, an integer of 0 or more", rank);
      group.push_back(rank.get<int>());
    }
    RankGroup checked{name, group};
    const absl::Status status = CheckGroup(absl::nullopt, &checked);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", status.message()));
    group = checked.ranks;
  }
  return groups;
}

absl::Status SetAttr(const std::string& param, const std::string& key, const Json& value,
                     const Groups& groups, ParamAttrs* attrs) {
  if (key == "group") {
    if (!value.is_string()) return Expected(param, key, "the name of a group", value);
    const auto found = groups.find(value.get<std::string>());
    if (found == groups.end()) return Expected(param, key, "a group that 'groups' names", value);
    attrs->group = RankGroup{found->first, found->second};
    return absl::OkStatus();
  }
  if (key == "layerwise_parallel") return SetFlag(param, key, value, &attrs->layerwise_parallel);
  if (key == "in_shard") return SetFlag(param, key, value, &attrs->in_shard);
  if (key == "parameter_server") return SetFlag(param, key, value, &attrs->parameter_server);
  if (key == "lr_ratio") return SetFactor(param, key, value, &attrs->lr_ratio);
  if (key == "weight_decay") return SetFactor(param, key, value, &attrs->weight_decay);
  if (key != "comm_fusion") {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", param, ": unknown key '", key,
                     "': expected comm_fusion, group, layerwise_parallel, in_shard, lr_ratio, "
                     "parameter_server, weight_decay"));
  }
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX;
  if (!fits) return Expected(param, key, "an integer from 0 to 2147483647", value);
  attrs->comm_fusion = value.get<int>();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParamAttrsByName> ParseParamAttrs(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  Groups groups;
  if (json.contains(kGroups)) {
    WEFT_ASSIGN_OR_RETURN(groups, ParseGroups(json[kGroups]));
  }
  ParamAttrsByName all;
  for (const auto& [param, attrs] : json.items()) {
    if (param == kGroups) continue;
    if (!attrs.is_object()) return Expected(param, "attributes", "a JSON object", attrs);
    ParamAttrs& of_param = all[param];
    for (const auto& [key, value] : attrs.items()) {
      WEFT_RETURN_IF_ERROR(SetAttr(param, key, value, groups, &of_param));
    }
  }
  return all;
}

}  // namespace weft
