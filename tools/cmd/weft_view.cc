// weft view: a program as a page to look at.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/training/num_ranks.h"
#include "proto/formats/program_file.h"
#include "tools/cmd/program_texts.h"
#include "tools/cmd/weft_commands.h"
#include "tools/files/step_times_file.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/setting_flags.h"
#include "tools/flags/shown_program.h"
#include "tools/view/page.h"
#include "tools/view/program_view.h"
#include "tools/view/remarks_file.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft view";

absl::StatusOr<ViewedPrograms> ReadAll(const ViewFlags& options) {
  int64_t malformed = 0;
  const auto read = [&](const std::string& path) -> absl::StatusOr<Program> {
    WEFT_ASSIGN_OR_RETURN(ReadableProgram program, ReadProgramToShow(kCommand, path));
    malformed += static_cast<int64_t>(program.malformed.size());
    return std::move(program.program);
  };
  WEFT_ASSIGN_OR_RETURN(Program main, read(options.file));
  ViewedPrograms programs = {std::move(main), {}, {}, {}};
  const std::pair<const std::string*, absl::optional<Program>*> others[] = {
      {&options.startup, &programs.startup},
      {&options.original, &programs.original},
      {&options.original_startup, &programs.original_startup}};
  for (const auto& [path, program] : others) {
    if (path->empty()) continue;
    WEFT_ASSIGN_OR_RETURN(*program, read(*path));
    if (program == &programs.original) continue;
    absl::StatusOr<Program> startup = StartupOf(**program);
    WEFT_RETURN_IF_ERROR(Annotate(*path, startup.status()));
    *program = *std::move(startup);
  }
  programs.malformed = malformed;
  return programs;
}

// What the verifier says, and what it rests on.
struct Verdict {
  GivenSetting given;
  Findings findings;
};

absl::StatusOr<Verdict> VerifyProgram(const ViewFlags& options, const ViewedPrograms& programs) {
  const ConstProgramPair pair = {&programs.main, ViewedPrograms::IfGiven(programs.startup)};
  Verdict verdict;
  WEFT_ASSIGN_OR_RETURN(verdict.given, SettingFor(options.setting, {options.file}, {pair},
                                                  ViewedPrograms::IfGiven(programs.original)));
  VerifyOptions verify;
  verify.setting = verdict.given.setting;
  verify.original = {ViewedPrograms::IfGiven(programs.original),
                     ViewedPrograms::IfGiven(programs.original_startup)};
  verdict.findings = Verify({pair}, verify);
  return verdict;
}

// "wrong: 2 errors, for any number of ranks".
std::string VerdictOf(const ViewFlags& options, const ViewedPrograms& programs,
                      const Verdict& verdict) {
  const Findings& findings = verdict.findings;
  absl::optional<int> nranks = verdict.given.setting.nranks;
  if (!nranks.has_value()) {
    nranks = FindNumRanks(programs.main, ViewedPrograms::IfGiven(programs.startup));
  }
  std::string ranks = "any number of ranks";
  if (nranks.has_value()) {
    ranks = absl::StrCat(*nranks, *nranks == 1 ? " rank" : " ranks");
  } else if (!Communicates(programs.main)) {
    ranks = "one device";
  }
  const int64_t shown = absl::c_count_if(
      findings.all(), [](const Finding& finding) { return finding.severity == Severity::kError; });
  const int64_t errors = shown + findings.NumOmittedErrors() + programs.malformed;
  const std::string compared =
      options.original.empty() ? ", not compared with an original" : ", as the original computes";
  std::vector<std::string> lines;
  if (nranks != 1 && (nranks.has_value() || Communicates(programs.main))) {
    lines = verdict.given.feeds;
  }
  const std::vector<std::string>& claims = verdict.given.claims;
  lines.insert(lines.end(), claims.begin(), claims.end());
  for (std::string& line : AssumedOfOps(programs.main, options.setting.assume)) {
    lines.push_back(std::move(line));
  }
  const std::string assumed =
      lines.empty() ? "" : absl::StrCat("; assumed: ", absl::StrJoin(lines, "; "));
  const int64_t warnings = absl::c_count_if(findings.all(), [](const Finding& finding) {
    return finding.severity == Severity::kWarning;
  });
  const std::string warned =
      warnings == 0 ? "" : absl::StrCat(", ", warnings, warnings == 1 ? " warning" : " warnings");
  if (errors == 0) return absl::StrCat("verified for ", ranks, compared, warned, assumed);
  const int64_t omitted = findings.NumOmittedErrors();
  return absl::StrCat("wrong: ", errors, errors == 1 ? " error, for " : " errors, for ", ranks,
                      omitted == 0 ? "" : absl::StrCat("; ", omitted, " of them are not listed"));
}

absl::Status ReadTimes(const ViewFlags& options, const Program& main, StepTimes* times) {
  if (!options.comm_table.empty()) {
    WEFT_ASSIGN_OR_RETURN(times->collective, ReadAs(options.comm_table, ParseCollectiveTable));
  }
  if (options.profile.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(times->op_seconds, ReadAs(options.profile, [&](absl::string_view text) {
                          return ParseProfile(text, main);
                        }));
  return absl::OkStatus();
}

// Without times if the verifier found that the program is not well-formed.
bool IsWellFormed(const Findings& findings) {
  return absl::c_none_of(findings.all(), [](const Finding& finding) {
    return finding.layer == Layer::kStructure && finding.severity == Severity::kError;
  });
}

absl::Status View(const ViewFlags& flags) {
  const std::vector<std::string> inputs = {
      flags.file,    flags.startup, flags.original, flags.original_startup,
      flags.explain, flags.trace,   flags.profile,  flags.comm_table};
  WEFT_RETURN_IF_ERROR(CheckOutputs(inputs, {flags.page}));
  WEFT_ASSIGN_OR_RETURN(ViewedPrograms programs, ReadAll(flags));
  WEFT_ASSIGN_OR_RETURN(const std::string page, PageText(flags, std::move(programs)));
  return Annotate(flags.page, WriteFile(flags.page, page));
}

void CheckFlags(const ViewFlags& options) {
  CheckStandardInput({{"FILE", options.file},
                      {"--startup", options.startup},
                      {"--original", options.original},
                      {"--original_startup", options.original_startup},
                      {"--remarks", options.explain},
                      {"--trace", options.trace},
                      {"--op_times", options.profile},
                      {"--comm_table", options.comm_table}});
  Require(options.original_startup.empty() || !options.startup.empty(), "--original_startup",
          "expected --startup, with which it is compared");
}

}  // namespace

void AddViewFlags(CLI::App* app, ViewFlags* flags) {
  AddOption(*app, "file", "FILE", flags->file, "The program; - is standard input")->required();
  AddOption(*app, "-o,--out", "PAGE.html", flags->page, "The page; - is standard output")
      ->required();
  auto* original =
      AddOption(*app, "--original", "F", flags->original, "The program before the rewrite");
  AddOption(*app, "--startup", "F", flags->startup,
            "The startup program; without it, rings count as set up");
  AddOption(*app, "--original_startup", "F", flags->original_startup,
            "The startup program before the rewrite")
      ->needs(original);
  AddOption(*app, "--remarks,--explain", "FILE.json", flags->explain,
            "Why ops were inserted, from transpile --remarks")
      ->needs(original);
  AddOption(*app, "--trace", "FILE.json", flags->trace,
            "When ops ran, from weft run --trace on this program");
  AddOption(*app, "--op_times,--profile", "FILE.json", flags->profile,
            "Times of ops, from weft run --profile, for the prediction; default: estimated");
  AddOption(*app, "--comm_table", "FILE.json", flags->comm_table,
            "Times of collectives, from weft comm_bench; default: 20 us and 4 GB/s");
  AddInteger(*app, "--batch", flags->batch, 1, INT32_MAX,
             "Rows of a rank's batch, for estimated times")
      ->capture_default_str();
  AddSettingFlags(app, &flags->setting, /*original=*/nullptr);
  app->callback([flags] { CheckFlags(*flags); });
}

absl::StatusOr<std::string> PageText(const ViewFlags& flags, ViewedPrograms programs) {
  WEFT_RETURN_IF_ERROR(AssumeOps(flags.setting.assume, {{&programs.main, flags.file}}));
  if (programs.original.has_value()) AssumeAs(programs.main, &*programs.original);
  ViewOptions view;
  view.name = flags.file;
  view.original = ViewedPrograms::IfGiven(programs.original);
  std::vector<FileRemark> remarks;
  if (!flags.explain.empty()) {
    WEFT_ASSIGN_OR_RETURN(remarks, ReadAs(flags.explain, ParseRemarks));
    view.remarks = &remarks;
  }
  WEFT_ASSIGN_OR_RETURN(const Verdict verdict, VerifyProgram(flags, programs));
  view.findings = &verdict.findings;
  view.verdict = VerdictOf(flags, programs, verdict);
  view.predicts = IsWellFormed(verdict.findings);
  view.predict.batch = flags.batch;
  WEFT_RETURN_IF_ERROR(ReadTimes(flags, programs.main, &view.predict.times));
  if (!flags.trace.empty()) {
    WEFT_ASSIGN_OR_RETURN(view.measured, ReadAs(flags.trace, [&](absl::string_view text) {
                            return ReadTrace(text, programs.main);
                          }));
  }
  const ProgramView model = ProgramView::Of(programs.main, std::move(view));
  return ViewPage(model);
}

Subcommand AddView(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "view",
      "Writes a page to look at: one HTML file for a browser, which needs no network. It shows "
      "the\n"
      "program by layers, what a rewrite changed and why, the findings of the verifier, and when\n"
      "ops run on streams and ranks.");
  auto options = std::make_shared<ViewFlags>();
  AddViewFlags(app, options.get());
  app->footer(
      "Example:\n"
      "  weft view out.pb --original main.pb --remarks why.json --trace trace.json -o page.html");
  return {app, [options] { return FinishCommand(kCommand, View(*options)); }};
}

}  // namespace weft
