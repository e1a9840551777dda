#include "tools/flags/assume_flag.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/setting.h"
#include "tools/files/setting_file.h"
#include "tools/flags/command_line.h"

namespace weft {
namespace {

constexpr char kFlag[] = "--assume";

absl::StatusOr<OpAssumptions> Parse(absl::string_view flag) {
  absl::StatusOr<OpAssumptions> assumptions = ParseOpAssumptions(flag);
  WEFT_RETURN_IF_ERROR(Annotate(kFlag, assumptions.status()));
  return assumptions;
}

absl::Status CheckTypes(const OpAssumptions& assumptions,
                        absl::Span<const ProgramOfFile> programs) {
  for (const auto& [type, words] : assumptions) {
    if (FindOpSchema(type) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          kFlag, ": ", type, ": expected an op without a schema; docs/reference/ops.md has it"));
    }
    const bool occurs = absl::c_any_of(programs, [&type = type](const ProgramOfFile& file) {
      return absl::c_any_of(AllOps(*file.program), [&](const Op& op) { return op.type() == type; });
    });
    if (!occurs) {
      return absl::InvalidArgumentError(
          absl::StrCat(kFlag, ": ", type, ": ", programs[0].path, " has no op of that type"));
    }
  }
  return absl::OkStatus();
}

// Those in `added` replace those that are there.
void Add(const OpAssumptions& added, Setting* setting) {
  for (const auto& [type, words] : added) setting->assumptions[type] = words;
}

}  // namespace

CLI::Option* AddAssumeFlag(CLI::App* app, std::string* assume) {
  return AddOption(*app, kFlag, "'my_op: elementwise,...'", *assume,
                   "What to assume about ops without a schema: elementwise, per_sample, "
                   "linear, no_communication, joined by |");
}

absl::Status AssumeOps(absl::string_view flag, absl::Span<const ProgramOfFile> programs) {
  WEFT_ASSIGN_OR_RETURN(const OpAssumptions given, Parse(flag));
  WEFT_RETURN_IF_ERROR(CheckTypes(given, programs));
  for (const ProgramOfFile& file : programs) {
    const absl::StatusOr<Setting> setting = SettingOfFile(file.path, *file.program);
    // Whoever needs the setting reports it.
    if (!setting.ok() && given.empty()) continue;
    WEFT_RETURN_IF_ERROR(setting.status());
    Setting assumed = *setting;
    Add(given, &assumed);
    if (assumed.assumptions != AssumptionsOf(*file.program)) {
      file.program->set_setting(ToJson(assumed));
    }
  }
  return absl::OkStatus();
}

void AssumeAs(const Program& program, Program* original) {
  const OpAssumptions assumptions = AssumptionsOf(program);
  absl::StatusOr<Setting> setting = SettingOf(*original);
  if (assumptions.empty() || !setting.ok()) return;
  Add(assumptions, &*setting);
  original->set_setting(ToJson(*setting));
}

std::vector<std::string> AssumedOfOps(const ProgramFacts& facts, absl::string_view flag) {
  std::vector<std::string> lines;
  if (!Communicates(facts)) return lines;
  const OpTraits& traits = facts.Get<OpTraits>();
  const Communications& communications = facts.Get<Communications>();
  const OpAssumptions assumptions = AssumptionsOf(facts.program());
  std::set<std::string> types;
  for (const Op& op : AllOps(facts.program())) {
    if (traits.IsRegistered(op) || communications.Of(op) != Communication::kNone) continue;
    types.emplace(op.type());
  }
  const absl::StatusOr<OpAssumptions> given = ParseOpAssumptions(flag);
  for (const auto& [type, words] : assumptions) {
    if (types.count(type) == 0) continue;
    const bool is_given = given.ok() && given->count(type) > 0;
    lines.push_back(absl::StrCat("of op type ", type, ": ", ToString(words), " (",
                                 is_given ? kFlag : "setting of the file", ")"));
  }
  for (auto type = types.begin(); type != types.end();) {
    type = FindAssumption(assumptions, *type) == nullptr ? std::next(type) : types.erase(type);
  }
  if (types.empty()) return lines;
  lines.push_back(absl::StrCat("ops of unregistered type", types.size() == 1 ? " " : "s ",
                               absl::StrJoin(types, ", "), " exchange nothing with other ranks"));
  return lines;
}

}  // namespace weft
