#include "ops/analysis/training/host_values.h"

#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/analysis/training/data_variables.h"
#include "proto/host_schedules.h"

namespace weft {
namespace {

// By variable: what the host does with it.
std::map<std::string, std::string> HostValuesOf(const Program& program) {
  std::map<std::string, std::string> values;
  for (VarId id : FindData(program)) {
    const Var var = program.var(id);
    if (var.block() == 0) values.emplace(var.name(), "feeds it");
  }
  for (const HostSchedule& schedule : FindHostSchedules(program)) {
    values[schedule.variable] =
        absl::StrCat("sets it by the schedule ", CanonicalSchedule(schedule.text));
  }
  return values;
}

// None: the program has no such variable that it keeps.
absl::optional<std::string> ValueIn(const std::map<std::string, std::string>& values,
                                    const Program& program, const std::string& name) {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  const VarId var = program.block(0).FindVar(name);
  if (!var.valid() || !program.var(var).persistable()) return absl::nullopt;
  return "does not set it";
}

// A table may have thousands of numbers.
std::string Shortened(const std::string& text) {
  constexpr size_t kShown = 160;
  return text.size() <= kShown ? text : absl::StrCat(text.substr(0, kShown), "...");
}

}  // namespace

std::vector<HostValueDifference> CompareHostValues(const Program& expected, const Program& found) {
  const std::map<std::string, std::string> in_expected = HostValuesOf(expected);
  const std::map<std::string, std::string> in_found = HostValuesOf(found);
  std::map<std::string, std::string> all = in_expected;
  all.insert(in_found.begin(), in_found.end());
  std::vector<HostValueDifference> differences;
  for (const auto& [name, value] : all) {
    const absl::optional<std::string> a = ValueIn(in_expected, expected, name);
    const absl::optional<std::string> b = ValueIn(in_found, found, name);
    if (!a.has_value() || !b.has_value() || *a == *b) continue;
    differences.push_back({name, Shortened(*a), Shortened(*b)});
  }
  return differences;
}

}  // namespace weft
