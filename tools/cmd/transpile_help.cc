#include "tools/cmd/transpile_help.h"

#include <cstddef>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/option_binder.h"
#include "base/spec_text.h"
#include "tools/flags/command_line.h"
#include "transpiler/context_flags.h"
#include "transpiler/passes/builtin_passes.h"

namespace weft {
namespace {

// What help shows for a value that is expected to be "an integer >= 1" or "auto|avg".
std::string TypeOf(absl::string_view expected) {
  if (absl::StartsWith(expected, "an integer")) return "N";
  if (absl::StartsWith(expected, "a number")) return "NUMBER";
  if (expected == "true or false") return "BOOL";
  return absl::StrContains(expected, '|') ? "WORD" : "TEXT";
}

// "averaging period, in steps (an integer >= 1; default 1)".
std::string HelpOf(const ModeFlag& flag) {
  std::vector<std::string> details;
  if (flag.expected != "a text") details.push_back(flag.expected);
  const std::string defaults = absl::StrJoin(flag.defaults, " or ");
  if (!defaults.empty()) details.push_back("default " + defaults);
  if (details.empty()) return flag.help;
  return absl::StrCat(flag.help, " (", absl::StrJoin(details, "; "), ")");
}

std::string Line(const Mode& mode) {
  return absl::StrFormat("  %-28s %s\n", mode.name, mode.description);
}

std::string PipelineOf(const Mode& mode) {
  return ToString(*ExpandMode(mode, Dialect::kWeft, mode.required));
}

std::string List(bool with_pipelines) {
  std::string text;
  for (Mode::Group group : kModeGroups) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "Modes, ", GroupTitle(group), ":\n");
    for (const Mode& mode : Modes()) {
      if (mode.group != group) continue;
      absl::StrAppend(&text, Line(mode));
      if (!with_pipelines || group != Mode::Group::kOtherSystems) continue;
      absl::StrAppend(&text, "      ", PipelineOf(mode), "\n");
    }
  }
  return text;
}

}  // namespace

std::string ListModes() { return List(/*with_pipelines=*/true); }

std::string ListPasses() {
  std::string text;
  const PassRegistry registry = BuiltinPasses();
  for (const auto& [name, entry] : registry.entries()) {
    absl::StrAppendFormat(&text, "%-28s %s\n", name, entry.description);
    for (const OptionBinder::Option& option : entry.options) {
      absl::StrAppendFormat(&text, "    %-20s %s (%s; default %s)\n", option.name, option.help,
                            option.expected, option.default_value);
    }
  }
  return text;
}

void AddModeFlags(CLI::App& app, std::map<std::string, absl::optional<std::string>>* values) {
  const ptrdiff_t num_modes =
      absl::c_count_if(Modes(), [](const Mode& mode) { return !mode.pipelines.empty(); });
  const std::vector<ModeFlag> flags = *ModeFlags(BuiltinPasses());
  for (const ModeFlag& flag : flags) {
    absl::optional<std::string>& value = (*values)[flag.name];
    if (flag.expected == OptionBinder::kOnOrOff) {
      app.add_flag_callback(
          "--" + flag.name, [&value] { value = "on"; }, flag.help);
      continue;
    }
    const bool all_read_it = static_cast<ptrdiff_t>(flag.modes.size()) == num_modes;
    const std::string modes = all_read_it ? "" : absl::StrJoin(flag.modes, ", ") + ": ";
    const std::string old = flag.old_name.empty() ? "" : ",--" + flag.old_name;
    app.add_option("--" + flag.name + old, value, modes + HelpOf(flag))
        ->type_name(TypeOf(flag.expected));
  }
}

void AddContextFlags(CLI::App& app, std::map<std::string, absl::optional<std::string>>* values) {
  for (const ContextFlag& flag : ContextFlags()) {
    const char* const more = absl::string_view(flag.name) != "rank"
                                 ? ""
                                 : "; all: writes outputs for every trainer, whose number replaces "
                                   "{rank} in their names";
    app.add_option(absl::StrCat("--", flag.name), (*values)[flag.name],
                   absl::StrCat(flag.help, " (", flag.expected, "; default ", flag.default_value,
                                ")", more))
        ->type_name(TypeOf(flag.expected));
  }
}

void ShowModes(CLI::App& app) {
  app.footer(absl::StrCat(List(/*with_pipelines=*/false),
                          "\nFlags of a mode: transpile --mode MODE --help\n", app.get_footer()));
}

void ShowFlagsOf(const Mode& mode, CLI::App& app) {
  const std::string group = "Flags of mode " + mode.name;
  const std::vector<ModeFlag> flags = *ModeFlags(mode, BuiltinPasses());
  for (const ModeFlag& flag : flags) {
    CLI::Option* const option = app.get_option("--" + flag.name)->group(group);
    if (flag.expected != OptionBinder::kOnOrOff) option->description(HelpOf(flag));
  }
  for (const ContextFlag& flag : ContextFlags()) {
    app.get_option(absl::StrCat("--", flag.name))
        ->group(ReadsContext(mode, flag.name) ? group : "");
  }
  // Of the tool, not of passes. What one mode alone reads begins with its name.
  for (CLI::Option* option : app.get_options()) {
    if (absl::StartsWith(option->get_description(), mode.name + ": ")) option->group(group);
  }
  std::vector<const char*> of_all = {"--place", "--device_memory"};
  if (!mode.pipelines.empty()) of_all.push_back("--param_attrs");
  for (const char* flag : of_all) app.get_option(flag)->group(group);
  std::string example = absl::StrCat("--mode ", mode.name);
  for (const auto& [flag, value] : mode.required) {
    absl::StrAppend(&example, " --", flag, " ", value);
  }
  app.footer(
      absl::StrCat("Mode ", mode.name, ": ", mode.description, "\n",
                   absl::StrReplaceAll(app.get_footer(), {{"--mode grad_allreduce", example}})));
}

}  // namespace weft
