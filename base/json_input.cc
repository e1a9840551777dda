#include "base/json_input.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr int kMaxDepth = 100;

// Counts brackets outside of strings: for text that is no JSON, the parser finds that.
bool IsDeep(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text) {
  if (IsDeep(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected JSON of at most ", kMaxDepth, " levels"));
  }
  using Json = nlohmann::json;
  // The parser keeps one of several values of a key, and says nothing.
  std::vector<absl::flat_hash_set<std::string>> keys;  // of the open objects
  absl::Status repeated;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        repeated.Update(absl::InvalidArgumentError(
            absl::StrCat("key '", absl::Utf8SafeCHexEscape(key),
                         "': expected it once in its object, found it twice")));
      }
    }
    return repeated.ok();  // false: drops the value
  };
  const Json json = Json::parse(text.begin(), text.end(), check, /*allow_exceptions=*/false);
  WEFT_RETURN_IF_ERROR(repeated);
  if (json.is_discarded()) return absl::InvalidArgumentError("not a JSON file");
  if (!json.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  return json;
}

absl::Status ExpectedInJson(absl::string_view key, absl::string_view what,
                            const nlohmann::json& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("key '", key, "': expected ", what, ", found ",
                   found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

absl::StatusOr<int64_t> JsonInteger(absl::string_view key, const nlohmann::json& value) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (!fits) return ExpectedInJson(key, "an integer of 64 bits", value);
  return value.get<int64_t>();
}

}  // namespace weft
