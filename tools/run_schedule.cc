#include "tools/run_schedule.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "tools/lr_schedule.h"

namespace weft {
namespace {

constexpr char kLrSchedule[] = "lr_schedule";
constexpr char kLrVar[] = "lr_var";
constexpr char kSet[] = "set";  // lines

// Splits at the last "=": names may contain one, numbers do not.
absl::StatusOr<HostValue> ParseHostValue(const std::string& text) {
  const size_t equals = text.rfind('=');
  double value = 0;
  if (equals == std::string::npos || equals == 0 ||
      !absl::SimpleAtod(text.substr(equals + 1), &value)) {
    return absl::InvalidArgumentError("expected NAME=VALUE, found " + text);
  }
  if (!std::isfinite(value)) {
    return absl::InvalidArgumentError("expected a finite number, found " + text);
  }
  return SameAtAllSteps(text.substr(0, equals), value);
}

// Of a flag and the checkpoint. Empty: nothing.
std::string Choose(const char* flag, const std::string& given, const std::string& kept,
                   const std::function<void(const std::string&)>& note) {
  if (given.empty()) return kept;
  if (given != kept) {
    note(absl::StrCat(flag, " ", given, ": the checkpoint has ", kept.empty() ? "none" : kept));
  }
  return given;
}

// Rates end once and for all.
absl::Status CheckEnd(const LrSchedule& rate, int64_t begin, int64_t end) {
  if (end <= begin || !std::isnan(rate(end - 1))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it has no rate for step ", end - 1,
                   ", the last one of the run; run fewer steps, or export "
                   "the program with more (schedule_steps=N)"));
}

// A table may have thousands of numbers.
std::string Shortened(const std::string& text) {
  constexpr size_t kShown = 80;
  return text.size() <= kShown ? text : absl::StrCat(text.substr(0, kShown), "...");
}

}  // namespace

absl::StatusOr<std::vector<HostValue>> ParseHostValues(const std::vector<std::string>& texts) {
  std::vector<HostValue> values;
  for (const std::string& text : texts) {
    WEFT_ASSIGN_OR_RETURN(HostValue value, ParseHostValue(text));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<std::vector<HostValue>> HostValuesOf(
    const RunSchedule& schedule, const Program& main, absl::Span<const std::string> fed,
    int64_t begin, int64_t end, const std::function<void(const std::string&)>& note) {
  WEFT_ASSIGN_OR_RETURN(std::vector<HostValue> values, ParseHostValues(schedule.set));
  if (!schedule.lr_schedule.empty()) {
    WEFT_ASSIGN_OR_RETURN(LrSchedule rate, ParseLrSchedule(schedule.lr_schedule));
    std::string name = schedule.lr_var;
    if (name.empty()) {
      WEFT_ASSIGN_OR_RETURN(name, FindLearningRate(main));
    }
    WEFT_RETURN_IF_ERROR(Annotate("--lr_schedule", CheckEnd(rate, begin, end)));
    values.push_back({std::move(name), std::move(rate)});
  }
  absl::flat_hash_set<std::string> is_set(fed.begin(), fed.end());
  for (const HostValue& value : values) is_set.insert(value.name);
  WEFT_ASSIGN_OR_RETURN(const std::vector<ProgramSchedule> of_program, FindSchedules(main));
  for (const ProgramSchedule& scheduled : of_program) {
    if (is_set.contains(scheduled.variable)) continue;
    WEFT_ASSIGN_OR_RETURN(LrSchedule rate, ParseLrSchedule(scheduled.text));
    WEFT_RETURN_IF_ERROR(
        Annotate(absl::StrCat("variable ", scheduled.variable, ": its schedule in the program"),
                 CheckEnd(rate, begin, end)));
    note(absl::StrCat(scheduled.variable, " follows the schedule of the program, ",
                      Shortened(scheduled.text), "; --lr_schedule or --set gives another"));
    values.push_back({scheduled.variable, std::move(rate)});
  }
  return values;
}

std::map<std::string, std::string> SettingsOf(const RunSchedule& schedule) {
  std::map<std::string, std::string> settings;
  if (!schedule.lr_schedule.empty()) settings[kLrSchedule] = schedule.lr_schedule;
  if (!schedule.lr_var.empty()) settings[kLrVar] = schedule.lr_var;
  if (!schedule.set.empty()) settings[kSet] = absl::StrJoin(schedule.set, "\n");
  return settings;
}

absl::Status ContinueSchedule(const Checkpoint& checkpoint,
                              const std::function<void(const std::string&)>& note,
                              RunSchedule* schedule) {
  const auto setting = [&](const char* name) {
    const auto found = checkpoint.settings.find(name);
    return found == checkpoint.settings.end() ? std::string() : found->second;
  };
  if (schedule->lr_schedule.empty()) schedule->lr_var = setting(kLrVar);
  schedule->lr_schedule =
      Choose("--lr_schedule", schedule->lr_schedule, setting(kLrSchedule), note);
  const std::string set = Choose("--set", absl::StrJoin(schedule->set, "\n"), setting(kSet), note);
  schedule->set = absl::StrSplit(set, '\n', absl::SkipEmpty());
  WEFT_RETURN_IF_ERROR(Annotate("setting set", ParseHostValues(schedule->set).status()));
  if (schedule->lr_schedule.empty()) return absl::OkStatus();
  return Annotate("setting lr_schedule", ParseLrSchedule(schedule->lr_schedule).status());
}

}  // namespace weft
