#include "tools/cmd/transpile_programs.h"

#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"
#include "proto/feed_layout.h"
#include "proto/text/program_text.h"
#include "tools/files/param_attrs_file.h"
#include "tools/files/setting_file.h"
#include "tools/files/step_times_file.h"
#include "tools/flags/assume_flag.h"
#include "transpiler/mode_choice.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/transpile_plan.h"

namespace weft {
namespace {

// Writes the text of each state as <dir>/<number>_<pass>.main.prog and .startup.prog.
auto DumpTo(const std::string& dir) {
  return [dir, number = 0](absl::string_view pass,
                           const ProgramPair& programs) mutable -> absl::Status {
    if (mkdir(dir.c_str(), 0777) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(errno, absl::StrCat(dir, ": cannot create the directory"));
    }
    const std::string stem = absl::StrFormat("%s/%02d_%s", dir, number++, pass);
    const std::pair<const Program*, const char*> files[] = {{programs.main, ".main.prog"},
                                                            {programs.startup, ".startup.prog"}};
    for (const auto& [program, suffix] : files) {
      const std::string path = stem + suffix;
      if (program == nullptr) continue;
      WEFT_RETURN_IF_ERROR(Annotate(path, WriteFile(path, ProgramText(*program))));
    }
    return absl::OkStatus();
  };
}

// Of those that are given.
absl::Status ReadTimes(const TranspileFlags& flags, const Program& main, StepTimes* times) {
  if (!flags.comm_table.empty()) {
    WEFT_ASSIGN_OR_RETURN(times->collective, ReadAs(flags.comm_table, ParseCollectiveTable));
  }
  if (flags.profile.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(times->op_seconds, ReadAs(flags.profile, [&](absl::string_view text) {
                          return ParseProfile(text, main);
                        }));
  return absl::OkStatus();
}

// Plans mode auto: the one that fits, and says which and why.
absl::Status Choose(const ProgramPair& programs, TranspileFlags* flags) {
  TranspileOptions& options = flags->options;
  WEFT_ASSIGN_OR_RETURN(const ModeChoice choice, ChooseMode(programs, options));
  options.mode = choice.mode;
  flags->plan = PlanOf(options, BuiltinPasses());
  if (flags->plan.ok()) WEFT_RETURN_IF_ERROR(CheckTimesAreRead(*flags));
  flags->chosen = absl::StrCat(flags->in, ": mode ", choice.mode, ": ", choice.why);
  return flags->plan.status();
}

// Some passes only run if attributes of parameters say so.
absl::Status ReadParamAttrs(TranspileFlags* flags) {
  TranspileOptions& options = flags->options;
  if (flags->param_attrs.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(options.param_attrs, ReadAs(flags->param_attrs, ParseParamAttrs));
  if (options.mode == kAuto)
    return Annotate(flags->param_attrs, CheckServed(TranspilePlan(), options));
  flags->plan = PlanOf(options, BuiltinPasses());
  return Annotate(flags->param_attrs, flags->plan.status());
}

}  // namespace

absl::Status PrepareTranspile(const ProgramPair& programs, TranspileFlags* flags) {
  if (programs.startup != nullptr) {
    WEFT_RETURN_IF_ERROR(Annotate(flags->startup_in, CheckIsStartup(*programs.startup)));
  }
  Program* const main = programs.main;
  WEFT_RETURN_IF_ERROR(AssumeOps(flags->assume, {{main, flags->in}}));
  TranspileOptions& options = flags->options;
  WEFT_RETURN_IF_ERROR(ReadParamAttrs(flags));
  if (options.mode == kAuto) WEFT_RETURN_IF_ERROR(Annotate(flags->in, Choose(programs, flags)));
  WEFT_ASSIGN_OR_RETURN(options.feeds, ParseFeedLayouts(flags->feed_layout));
  if (main->setting().empty()) {
    WEFT_ASSIGN_OR_RETURN(options.setting, SettingOfFile(flags->in, *main));
  }
  WEFT_RETURN_IF_ERROR(ReadTimes(*flags, *main, &options.times));
  options.explain = !flags->explain.empty();
  if (!flags->dump_dir.empty()) options.observer = DumpTo(flags->dump_dir);
  return absl::OkStatus();
}

std::string PathFor(const std::string& path, int trainer) {
  const bool is_own = absl::StrContains(path, kRankInName);
  if (!is_own && trainer > 0) return "";
  return absl::StrReplaceAll(path, {{kRankInName, absl::StrCat(trainer)}});
}

CertificateClaim ClaimOf(const TranspileFlags& flags, const TranspileResult& result) {
  const std::vector<std::string>& endpoints = flags.options.cluster.endpoints;
  CertificateClaim claim{result.setting.nranks, result.setting.reduction};
  if (!claim.nranks.has_value() && !endpoints.empty()) {
    claim.nranks = static_cast<int>(endpoints.size());
  }
  return claim;
}

absl::StatusOr<std::vector<TranspileResult>> TranspileTrainers(const TranspileFlags& flags,
                                                               const TranspileOptions& options,
                                                               absl::Span<ProgramPair> trainers) {
  if (flags.all_ranks) {
    absl::StatusOr<std::vector<TranspileResult>> results =
        TranspileAllRanks(*flags.plan, options, trainers);
    WEFT_RETURN_IF_ERROR(Annotate(flags.in, results.status()));
    return results;
  }
  absl::StatusOr<TranspileResult> result = Transpile(*flags.plan, options, trainers[0]);
  WEFT_RETURN_IF_ERROR(Annotate(flags.in, result.status()));
  std::vector<TranspileResult> results;
  results.push_back(*std::move(result));
  return results;
}

}  // namespace weft
