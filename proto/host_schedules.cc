#include "proto/host_schedules.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/spec_text.h"

namespace weft {
namespace {

// A value is a word, a number, or a list of numbers.
std::string CanonicalValue(absl::string_view value) {
  std::vector<std::string> parts = absl::StrSplit(value, absl::ByAnyChar(":,"));
  for (std::string& part : parts) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number)) return std::string(value);
    part = absl::StrFormat("%.15g", number);
    double read = 0;
    if (!absl::SimpleAtod(part, &read) || read != number) part = absl::StrFormat("%.17g", number);
  }
  return absl::StrJoin(parts, ":");
}

}  // namespace

std::vector<HostSchedule> FindHostSchedules(const Program& program) {
  std::vector<HostSchedule> schedules;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    // Decoding all declarations takes longer.
    if (!var.persistable() || !absl::StrContains(var.bytes(), kScheduleAttr)) continue;
    const pb::VarDesc declaration = var.ToProto();
    for (const pb::VarDesc::Attr& attr : declaration.attrs()) {
      if (attr.name() == kScheduleAttr) schedules.push_back({declaration.name(), attr.s()});
    }
  }
  return schedules;
}

std::string CanonicalSchedule(const std::string& text) {
  absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  if (!specs.ok()) return text;
  for (Spec& spec : *specs) {
    for (auto& [name, value] : spec.options) value = CanonicalValue(value);
    std::sort(spec.options.begin(), spec.options.end());
  }
  return ToString(*specs);
}

}  // namespace weft
