// The options of a learning-rate schedule, as text has them.
#ifndef WEFT_TOOLS_SCHEDULES_SCHEDULE_OPTIONS_H_
#define WEFT_TOOLS_SCHEDULES_SCHEDULE_OPTIONS_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "base/spec_text.h"

namespace weft {

// The options of a schedule, taken by name. Keeps the first error; values taken after it are
// meaningless.
class ScheduleOptions {
 public:
  explicit ScheduleOptions(const Spec& spec) {
    for (const auto& [name, value] : spec.options) {
      if (!values_.emplace(name, value).second) Fail(absl::StrCat(name, ": given twice"));
    }
  }

  double Number(absl::string_view name, absl::optional<double> default_value = {}) {
    const absl::optional<std::string> text =
        default_value.has_value() ? TakeIfGiven(name) : Take(name);
    if (!text.has_value()) return default_value.value_or(0);
    return ToNumber(name, *text);
  }

  double PositiveNumber(absl::string_view name, absl::optional<double> default_value = {}) {
    const double value = Number(name, default_value);
    Expect(name, value > 0, "a number above 0", value);
    return value;
  }

  // A number of steps, 1 or more.
  double Steps(absl::string_view name, absl::optional<double> default_value = {}) {
    const double value = Number(name, default_value);
    Expect(name, IsInteger(value) && value >= 1, "a number of steps, 1 or more", value);
    return value;
  }

  bool Bool(absl::string_view name, bool default_value) {
    const absl::optional<std::string> text = TakeIfGiven(name);
    bool value = default_value;
    if (text.has_value() && !absl::SimpleAtob(*text, &value)) {
      Fail(absl::StrCat(name, ": expected true or false, found ", *text));
    }
    return value;
  }

  bool IsGiven(absl::string_view name) const { return values_.count(name) > 0; }

  std::string Word(absl::string_view name, absl::string_view default_value) {
    return TakeIfGiven(name).value_or(std::string(default_value));
  }

  void ExpectWord(absl::string_view name, absl::string_view found,
                  const std::vector<absl::string_view>& words) {
    if (std::find(words.begin(), words.end(), found) != words.end()) return;
    Fail(absl::StrCat(name, ": expected one of ", absl::StrJoin(words, ", "), ", found ", found));
  }

  // Those of a text file, one a line.
  std::vector<double> NumbersOfFile(absl::string_view name) {
    std::vector<double> numbers;
    const absl::optional<std::string> path = Take(name);
    if (!path.has_value()) return numbers;
    const absl::StatusOr<FileBytes> file = ReadFile(*path);
    if (!file.ok()) {
      Fail(absl::StrCat(name, ": ", *path, ": ", file.status().message()));
      return numbers;
    }
    for (absl::string_view line : absl::StrSplit(file->bytes, '\n')) {
      line = absl::StripAsciiWhitespace(line);
      if (!line.empty()) numbers.push_back(ToNumber(name, line));
    }
    return numbers;
  }

  std::vector<double> Numbers(absl::string_view name) {
    std::vector<double> numbers;
    const absl::optional<std::string> text = Take(name);
    if (!text.has_value()) return numbers;
    for (absl::string_view part : absl::StrSplit(*text, absl::ByAnyChar(":,"))) {
      numbers.push_back(ToNumber(name, part));
    }
    return numbers;
  }

  // Numbers of steps, in ascending order.
  std::vector<double> RisingSteps(absl::string_view name) {
    std::vector<double> steps = Numbers(name);
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool rises =
          IsInteger(steps[i]) && steps[i] >= 0 && (i == 0 || steps[i] > steps[i - 1]);
      Expect(name, rises, "numbers of steps, each larger than the one before", steps[i]);
    }
    return steps;
  }

  void Expect(absl::string_view name, bool holds, absl::string_view expected, double found) {
    if (!holds) Fail(absl::StrCat(name, ": expected ", expected, ", found ", found));
  }

  // Call after all options have been taken. An unknown option comes before what is missing, which
  // it may stand for.
  absl::Status status() const {
    if (values_.empty()) return status_;
    return absl::InvalidArgumentError(absl::StrCat(
        values_.begin()->first, ": unknown option; known options: ", absl::StrJoin(known_, ", ")));
  }

  void Fail(const std::string& message) { status_.Update(absl::InvalidArgumentError(message)); }

  static bool IsInteger(double value) { return value == std::floor(value) && value < 1e15; }

 private:
  absl::optional<std::string> Take(absl::string_view name) {
    absl::optional<std::string> text = TakeIfGiven(name);
    if (!text.has_value()) Fail(absl::StrCat(name, ": missing"));
    return text;
  }

  absl::optional<std::string> TakeIfGiven(absl::string_view name) {
    known_.insert(std::string(name));
    const auto it = values_.find(name);
    if (it == values_.end()) return absl::nullopt;
    std::string text = std::move(it->second);
    values_.erase(it);
    return text;
  }

  double ToNumber(absl::string_view name, absl::string_view text) {
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
      Fail(absl::StrCat(name, ": expected a number, found ", text.empty() ? "nothing" : text));
    }
    return value;
  }

  std::map<std::string, std::string, std::less<>> values_;  // not taken yet
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_SCHEDULES_SCHEDULE_OPTIONS_H_
