#include "tools/param_attrs_file.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/json_input.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

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

absl::Status SetAttr(const std::string& param, const std::string& key, const Json& value,
                     ParamAttrs* attrs) {
  if (key == "layerwise_parallel") return SetFlag(param, key, value, &attrs->layerwise_parallel);
  if (key == "in_shard") return SetFlag(param, key, value, &attrs->in_shard);
  if (key == "parameter_server") return SetFlag(param, key, value, &attrs->parameter_server);
  if (key != "comm_fusion") {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", param, ": unknown key '", key,
                     "': expected comm_fusion, layerwise_parallel, in_shard, parameter_server"));
  }
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX;
  if (!fits) return Expected(param, key, "an integer from 0 to 2147483647", value);
  attrs->comm_fusion = value.get<int>();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParamAttrsByName> ParseParamAttrs(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  ParamAttrsByName all;
  for (const auto& [param, attrs] : json.items()) {
    if (!attrs.is_object()) return Expected(param, "attributes", "a JSON object", attrs);
    ParamAttrs& of_param = all[param];
    for (const auto& [key, value] : attrs.items()) {
      WEFT_RETURN_IF_ERROR(SetAttr(param, key, value, &of_param));
    }
  }
  return all;
}

}  // namespace weft
