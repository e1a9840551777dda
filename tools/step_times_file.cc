#include "tools/step_times_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<Json> ParseObject(absl::string_view text) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not a JSON file");
  if (!json.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  return json;
}

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

// Of several ops in one, "op 0 (mul) with op 1 (relu)" or "op 5 (adam) to op 9 (adam)": the first.
std::string FirstOp(absl::string_view name) {
  for (absl::string_view joint : {" with ", " to "}) name = name.substr(0, name.find(joint));
  return std::string(name);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

absl::StatusOr<CollectiveTime> ParseCollectiveTable(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseObject(text));
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
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseObject(text));
  WEFT_ASSIGN_OR_RETURN(const Json list, ListOf(json, "ops"));
  std::map<std::string, size_t> position_of;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    position_of[op.DebugName()] = op.position();
  }
  std::vector<double> seconds(position_of.size(), 0);
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
    if (!std::isfinite(time) || time < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(op->first, ": expected seconds >= 0, found ", time));
    }
    seconds[op->second] += time;
  }
  return seconds;
}

void OpProfile::Add(const StepTrace& trace) {
  if (trace.rank != 0) return;
  for (const std::vector<OpSpan>& stream : trace.spans) {
    for (const OpSpan& span : stream) {
      const Plan::PlanOp& op = trace.plan->ops[span.op];
      // A collective runs beside the ops; what it takes says comm_bench.
      if (op.ring >= 0) continue;
      auto [it, is_new] = seconds_.try_emplace(op.name);
      if (is_new) names_.push_back(op.name);
      const auto [step, is_first] = step_of_.try_emplace(op.name, trace.step);
      const double time = std::chrono::duration<double>(span.end - span.begin).count();
      if (is_first || step->second != trace.step) {
        it->second.push_back(time);
      } else {
        it->second.back() += time;  // in a loop
      }
      step->second = trace.step;
    }
  }
}

std::string OpProfile::Json() const {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const std::string& name : names_) {
    std::vector<double> seconds = seconds_.at(name);
    if (seconds.size() > kWarmUpSteps)
      seconds.erase(seconds.begin(), seconds.begin() + kWarmUpSteps);
    ops.push_back({{"op", name}, {"seconds", Median(std::move(seconds))}});
  }
  return nlohmann::ordered_json{{"ops", std::move(ops)}}.dump(1) + "\n";
}

}  // namespace weft
