// Options: what the commands' flags say of them, and the arguments that callers set.
#include <algorithm>
#include <map>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/similar_name.h"
#include "base/status_macros.h"
#include "c/handles.h"
#include "c/weft.h"
#include "tools/cmd/program_texts.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/cmd/weft_eval_flags.h"
#include "tools/cmd/weft_run_flags.h"
#include "tools/cmd/weft_verify.h"
#include "tools/flags/flag_names.h"

namespace weft::c {
namespace {

// The flags of a command, for their names and help.
struct CommandFlags {
  CLI::App app;
  TranspileFlags transpile;
  VerifyFlags verify;
  StatsFlags stats;
  PlanFlags plan;
  ViewFlags view;
  RunFlags run;
  EvalFlags eval;
};

// A command, and those of its flags that are arguments and results of a call.
struct CommandEntry {
  const char* name;
  void (*add)(CommandFlags& flags);
  std::set<absl::string_view> others;
};

const std::vector<CommandEntry>& Commands() {
  static const auto* const commands = new std::vector<CommandEntry>{
      {"transpile",
       [](CommandFlags& flags) { AddFlags(flags.app, flags.transpile); },
       {"startup_in", "startup_out", "server_out", "remarks", "no_verify", "list_modes",
        "list_passes"}},
      {"verify",
       [](CommandFlags& flags) { AddVerifyFlags(&flags.app, &flags.verify); },
       {"startup", "original", "original_startup", "server", "format", "short", "explain"}},
      {"stats", [](CommandFlags& flags) { AddStatsFlags(&flags.app, &flags.stats); }, {}},
      {"plan", [](CommandFlags& flags) { AddPlanFlags(&flags.app, &flags.plan); }, {"gradients"}},
      {"view",
       [](CommandFlags& flags) { AddViewFlags(&flags.app, &flags.view); },
       {"out", "startup", "original", "original_startup"}},
      {"run",
       [](CommandFlags& flags) { AddRunFlags(flags.app, flags.run); },
       {"startup",        "server",       "servers",     "feeds",       "drop_last",  "steps",
        "job_token_file", "nccl_id_file", "save",        "checkpoint",  "save_every", "keep",
        "keep_best",      "valid",        "valid_feeds", "valid_every", "valid_ema",  "metrics",
        "tensorboard",    "log_every",    "quiet",       "fetch_npz",   "trace",      "profile"}},
      {"eval",
       [](CommandFlags& flags) { AddEvalFlags(flags.app, flags.eval); },
       {"startup", "params", "params_names", "checkpoint", "feeds", "batches", "ranks", "metrics",
        "tensorboard", "fetch_npz", "format"}},
  };
  return *commands;
}

bool IsSettable(const CommandEntry& command, const CLI::Option& option) {
  return option.nonpositional() && !option.get_lnames().empty() &&
         !absl::StartsWith(option.get_lnames()[0], "help") &&
         command.others.count(option.get_lnames()[0]) == 0;
}

weft_options::Info InfoOf(const CLI::Option& option) {
  weft_options::Info info;
  info.name = option.get_lnames()[0];
  info.is_flag = option.get_items_expected_max() == 0;
  info.is_list = option.get_items_expected_max() > 1;
  if (!info.is_flag) info.type = option.get_type_name();
  info.default_value = option.get_default_str();
  info.help = absl::StrReplaceAll(WithOptions(option.get_description()), {{"\n", " "}});
  return info;
}

// By flag of the commands, how callers read it: as an option where every command that has the flag
// takes it from them.
const std::map<std::string, std::string>& NamesOfFlags() {
  static const auto* const names = [] {
    std::map<std::string, bool> settable;
    for (const CommandEntry& command : Commands()) {
      CommandFlags flags;
      command.add(flags);
      for (const CLI::Option* option : flags.app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
          bool& is = settable.emplace(name, true).first->second;
          is = is && IsSettable(command, *option);
        }
      }
    }
    auto* const all = new std::map<std::string, std::string>;
    for (const auto& [name, is] : settable) {
      (*all)[name] = is ? absl::StrCat("option ", name) : name;
    }
    (*all)["startup_in"] = "startup";
    for (const char* name : {"list_modes", "list_passes"}) {
      (*all)[name] = absl::StrCat("transpile --", name);
    }
    return all;
  }();
  return *names;
}

// Whether a flag after `before` belongs to a command in a shell, which can do more than callers.
bool IsInShell(absl::string_view before, absl::string_view flag) {
  return absl::EndsWith(before, "weft run ") || absl::EndsWith(before, "weft view ") ||
         absl::EndsWith(before, "weft verify ") ||
         (absl::EndsWith(before, "transpile ") && (flag == "remarks" || flag == "server_out"));
}

}  // namespace

std::string WithOptions(absl::string_view message) {
  const std::string with_flags = WithFlags(message);
  absl::string_view rest = with_flags;
  std::string text;
  for (size_t at; (at = rest.find("--")) != rest.npos;) {
    absl::StrAppend(&text, rest.substr(0, at));
    rest.remove_prefix(at + 2);
    const bool is_word = text.empty() || (!absl::ascii_isalnum(text.back()) && text.back() != '-');
    const std::string flag(
        rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_")));
    const auto name = NamesOfFlags().find(flag);
    if (!is_word || name == NamesOfFlags().end() || IsInShell(text, flag)) {
      text += "--";
      continue;
    }
    rest.remove_prefix(flag.size());
    const bool is_subject = absl::StartsWith(rest, ":");  // "nranks: expected ..."
    text += is_subject ? flag : name->second;
  }
  return absl::StrCat(text, rest);
}

}  // namespace weft::c

using weft::c::Guard;

weft_status* weft_options_new(const char* command, weft_options** options) {
  return Guard([&]() -> absl::Status {
    const auto& commands = weft::c::Commands();
    const auto found = absl::c_find_if(
        commands, [&](const auto& entry) { return absl::string_view(entry.name) == command; });
    if (found == commands.end()) {
      return absl::NotFoundError(
          absl::StrCat("no command is a ", command, ": expected ",
                       absl::StrJoin(commands, ", ", [](std::string* out, const auto& entry) {
                         absl::StrAppend(out, entry.name);
                       })));
    }
    weft::c::CommandFlags flags;
    found->add(flags);
    auto made = std::make_unique<weft_options>();
    made->command = command;
    for (const CLI::Option* option : flags.app.get_options()) {
      if (IsSettable(*found, *option)) made->infos.push_back(weft::c::InfoOf(*option));
    }
    *options = made.release();
    return absl::OkStatus();
  });
}

weft_status* weft_options_set(weft_options* options, const char* name, const char* value) {
  return Guard([&]() -> absl::Status {
    const auto& commands = weft::c::Commands();
    const auto command = absl::c_find_if(
        commands, [&](const auto& entry) { return entry.name == options->command; });
    weft::c::CommandFlags flags;
    command->add(flags);
    const CLI::Option* const option = flags.app.get_option_no_throw(absl::StrCat("--", name));
    if (option == nullptr) {
      std::vector<absl::string_view> names;
      for (const weft_options::Info& info : options->infos) names.push_back(info.name);
      return absl::InvalidArgumentError(
          absl::StrCat(options->command, " has no option ", name, weft::DidYouMean(name, names)));
    }
    if (!IsSettable(*command, *option)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " is of the command alone: expected what this call takes, and returns"));
    }
    // Flags take no other value than that they are there.
    const absl::string_view text = value;
    if (option->get_items_expected_max() == 0) {
      if (text == "true") options->arguments.push_back(absl::StrCat("--", name));
      if (text == "true" || text == "false") return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected true or false, found ", text));
    }
    if (text.empty()) {
      options->arguments.push_back(absl::StrCat("--", name));
      options->arguments.emplace_back();
    } else {
      options->arguments.push_back(absl::StrCat("--", name, "=", text));
    }
    return absl::OkStatus();
  });
}

size_t weft_options_count(const weft_options* options) { return options->infos.size(); }

weft_option weft_options_get(const weft_options* options, size_t index) {
  const weft_options::Info& info = options->infos[index];
  return {info.name.c_str(), info.type.c_str(), info.default_value.c_str(),
          info.help.c_str(), info.is_flag,      info.is_list};
}

void weft_options_set_progress(weft_options* options,
                               void (*progress)(void* context, const char* pass), void* context) {
  options->progress = nullptr;
  if (progress == nullptr) return;
  options->progress = [progress, context](const char* pass) { progress(context, pass); };
}

void weft_options_free(weft_options* options) { delete options; }
