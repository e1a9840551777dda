#include "tools/schedules/run_schedule.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/host_schedules.h"
#include "tools/schedules/lr_schedule.h"

namespace weft {
namespace {

constexpr char kLrSchedule[] = "lr_schedule";
constexpr char kLrVar[] = "lr_var";
constexpr char kSet[] = "set";  // lines
constexpr char kState[] = "lr_state";

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

absl::Status AddRate(const std::string& variable, const std::string& text, const std::string& state,
                     int64_t begin, int64_t end, HostSettings* settings) {
  if (PlateauSchedule::IsNamedIn(text)) {
    if (settings->plateau.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected one rate that follows a metric, but ", settings->plateau->variable, " does"));
    }
    WEFT_ASSIGN_OR_RETURN(PlateauSchedule plateau, PlateauSchedule::Parse(text));
    if (!state.empty()) WEFT_RETURN_IF_ERROR(plateau.Restore(state));
    settings->values.push_back(SameAtAllSteps(variable, plateau.rate()));
    settings->plateau = PlateauRate{variable, std::move(plateau)};
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(LrSchedule rate, ParseLrSchedule(text));
  WEFT_RETURN_IF_ERROR(CheckEnd(rate, begin, end));
  settings->values.push_back({variable, std::move(rate)});
  return absl::OkStatus();
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

absl::StatusOr<HostSettings> HostSettingsOf(const RunSchedule& schedule, const Program& main,
                                            absl::Span<const std::string> fed, int64_t begin,
                                            int64_t end,
                                            const std::function<void(const std::string&)>& note) {
  HostSettings settings;
  WEFT_ASSIGN_OR_RETURN(settings.values, ParseHostValues(schedule.set));
  if (!schedule.lr_schedule.empty()) {
    std::string name = schedule.lr_var;
    if (name.empty()) {
      WEFT_ASSIGN_OR_RETURN(name, FindLearningRate(main));
    }
    WEFT_RETURN_IF_ERROR(Annotate("--lr_schedule", AddRate(name, schedule.lr_schedule,
                                                           schedule.state, begin, end, &settings)));
  }
  absl::flat_hash_set<std::string> is_set(fed.begin(), fed.end());
  for (const HostValue& value : settings.values) is_set.insert(value.name);
  for (const HostSchedule& scheduled : FindHostSchedules(main)) {
    if (is_set.contains(scheduled.variable)) continue;
    const std::string what =
        absl::StrCat("variable ", scheduled.variable, ": its schedule in the program");
    WEFT_RETURN_IF_ERROR(Annotate(what, CheckLrSchedule(scheduled.text)));
    WEFT_RETURN_IF_ERROR(Annotate(
        what, AddRate(scheduled.variable, scheduled.text, schedule.state, begin, end, &settings)));
    settings.of_program[scheduled.variable] = CanonicalSchedule(scheduled.text);
    note(absl::StrCat(scheduled.variable, " follows the schedule of the program, ",
                      Shortened(scheduled.text), "; --lr_schedule or --set gives another"));
    is_set.insert(scheduled.variable);
  }
  const absl::StatusOr<std::string> rate = FindLearningRate(main);
  const VarId var = rate.ok() ? main.block(0).FindVar(*rate) : VarId();
  if (!var.valid() || is_set.contains(*rate)) return settings;
  constexpr absl::string_view kAdvice =
      "; --lr_schedule gives one, or write the program with tools/paddle/export_program.py";
  if (main.var(var).is_parameter()) {
    note(absl::StrCat(*rate,
                      " stays constant: in Paddle 3's format, a rate that is a parameter has a "
                      "scheduler, and the program does not have its schedule",
                      kAdvice));
  } else if (schedule.is_paddles_model) {
    note(absl::StrCat(*rate,
                      " stays constant: Paddle's file does not say whether the script has a "
                      "scheduler",
                      kAdvice));
  }
  return settings;
}

std::map<std::string, std::string> SettingsOf(const RunSchedule& schedule,
                                              const PlateauSchedule* plateau) {
  std::map<std::string, std::string> settings;
  if (!schedule.lr_schedule.empty()) settings[kLrSchedule] = schedule.lr_schedule;
  if (!schedule.lr_var.empty()) settings[kLrVar] = schedule.lr_var;
  if (!schedule.set.empty()) settings[kSet] = absl::StrJoin(schedule.set, "\n");
  if (plateau != nullptr) settings[kState] = plateau->State();
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
  // Another schedule begins anew.
  const bool goes_on =
      schedule->lr_schedule.empty() || schedule->lr_schedule == setting(kLrSchedule);
  if (goes_on) schedule->state = setting(kState);
  schedule->lr_schedule =
      Choose("--lr_schedule", schedule->lr_schedule, setting(kLrSchedule), note);
  const std::string set = Choose("--set", absl::StrJoin(schedule->set, "\n"), setting(kSet), note);
  schedule->set = absl::StrSplit(set, '\n', absl::SkipEmpty());
  WEFT_RETURN_IF_ERROR(Annotate("setting set", ParseHostValues(schedule->set).status()));
  if (schedule->lr_schedule.empty()) return absl::OkStatus();
  return Annotate("setting lr_schedule", CheckLrSchedule(schedule->lr_schedule));
}

}  // namespace weft
