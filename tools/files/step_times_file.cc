#include "tools/files/step_times_file.h"

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_input.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

absl::StatusOr<double> NumberOf(const Json& json, const std::string& key) {
  const auto it = json.is_object() ? json.find(key) : json.end();
  if (it == json.end() || !it->is_number()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a number '", key, "'"));
  }
  return it->get<double>();
}

absl::StatusOr<Json> ListOf(const Json& json, const std::string& key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a list '", key, "'"));
  }
  return *it;
}

// "op 0 (mul)" of "op 0 (mul) with op 1 (relu)", "op 5 (adam) to op 9 (adam)" and of "op 0
// (conv2d): transposing an image": time counts for the first op.
std::string FirstOp(absl::string_view name) {
  const size_t end = name.find(')');
  return std::string(end == name.npos ? name : name.substr(0, end + 1));
}

}  // namespace

absl::StatusOr<CollectiveTime> ParseCollectiveTable(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  if (json.contains("latency_s") || json.contains("bytes_per_s")) {
    WEFT_ASSIGN_OR_RETURN(const double latency, NumberOf(json, "latency_s"));
    WEFT_ASSIGN_OR_RETURN(const double bandwidth, NumberOf(json, "bytes_per_s"));
    return CollectiveTime::AlphaBeta(latency, bandwidth);
  }
  WEFT_ASSIGN_OR_RETURN(const Json list, ListOf(json, "points"));
  std::vector<CollectiveTime::Point> points;
  for (const Json& point : list) {
    WEFT_ASSIGN_OR_RETURN(const double bytes, NumberOf(point, "bytes"));
    WEFT_ASSIGN_OR_RETURN(const double seconds, NumberOf(point, "seconds"));
    if (!(bytes >= 0 && bytes < 9e18)) {
      return absl::InvalidArgumentError(absl::StrCat("expected bytes >= 0, found ", bytes));
    }
    points.push_back({static_cast<int64_t>(bytes), seconds});
  }
  return CollectiveTime::FromPoints(points);
}

absl::StatusOr<std::vector<double>> ParseProfile(absl::string_view text, const Program& program) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  WEFT_ASSIGN_OR_RETURN(const Json list, ListOf(json, "ops"));
  std::map<std::string, size_t> position_of;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    position_of[op.DebugName()] = op.position();
  }
  std::vector<double> seconds(position_of.size(), 0);
  double total = 0;
  for (const Json& entry : list) {
    const auto name = entry.is_object() ? entry.find("op") : entry.end();
    if (name == entry.end() || !name->is_string()) {
      return absl::InvalidArgumentError("expected a string 'op' in each of 'ops'");
    }
    const auto op = position_of.find(FirstOp(name->get<std::string>()));
    if (op == position_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the program has no ", name->get<std::string>(),
                       ": the profile is of another program; measure the program that is planned"));
    }
    WEFT_ASSIGN_OR_RETURN(const double time, NumberOf(entry, "seconds"));
    if (!(time >= 0 && time <= 1e9)) {
      return absl::InvalidArgumentError(
          absl::StrCat(op->first, ": expected seconds from 0 to 1e9, found ", time));
    }
    seconds[op->second] += time;
    total += time;
  }
  if (total == 0) return absl::InvalidArgumentError("the profile has no times");
  return seconds;
}

}  // namespace weft
