#include "tools/view/remarks_file.h"

#include "absl/status/status.h"
#include "base/json_input.h"
#include "base/status_macros.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;  // details stand as the pass wrote them

absl::StatusOr<FileRemark> ParseRemark(const Json& json) {
  if (!json.is_object()) return ExpectedInJson("notes", "objects", nlohmann::json(json));
  FileRemark remark;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return ExpectedInJson(key, "a string", nlohmann::json(value));
    const auto text = value.get<std::string>();
    if (key == "pass") {
      remark.pass = text;
    } else if (key == "subject") {
      remark.subject = text;
    } else if (key == "what") {
      remark.what = text;
    } else if (key == "why") {
      remark.why = text;
    } else {
      remark.details.emplace_back(key, text);
    }
  }
  return remark;
}

}  // namespace

absl::StatusOr<std::vector<FileRemark>> ParseRemarks(absl::string_view json) {
  WEFT_RETURN_IF_ERROR(ParseJsonObject(json).status());
  const Json file = Json::parse(json.begin(), json.end());
  const auto notes = file.find("notes");
  if (notes == file.end() || !notes->is_array()) {
    return absl::InvalidArgumentError(
        "expected a list under key 'notes', as transpile --remarks writes it");
  }
  std::vector<FileRemark> remarks;
  for (const Json& note : *notes) {
    WEFT_ASSIGN_OR_RETURN(remarks.emplace_back(), ParseRemark(note));
  }
  return remarks;
}

}  // namespace weft
