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

struct Options {
  std::string file, startup, original, original_startup, explain, trace, profile, comm_table, page;
  SettingFlags setting;
  int64_t batch = 32;
};

struct Programs {
  Program main;
  absl::optional<Program> startup, original, original_startup;
  int64_t malformed = 0;  // places, in any of the files

  static const Program* IfGiven(const absl::optional<Program>& program) {
    return program.has_value() ? &*program : nullptr;
  }
};

absl::StatusOr<Programs> ReadAll(const Options& options) {
  int64_t malformed = 0;
  const auto read = [&](const std::string& path) -> absl::StatusOr<Program> {
    WEFT_ASSIGN_OR_RETURN(ReadableProgram program, ReadProgramToShow(kCommand, path));
    malformed += static_cast<int64_t>(program.malformed.size());
    return std::move(program.program);
  };
  WEFT_ASSIGN_OR_RETURN(Program main, read(options.file));
  Programs programs = {std::move(main), {}, {}, {}};
  const std::pair<const std::string*, absl::optional<Program>*> others[] = {
      {&options.startup, &programs.startup},
      {&options.original, &programs.original},
      {&options.original_startup, &programs.original_startup}};
  for (const auto& [path, program] : others) {
    if (path->empty()) continue;
    WEFT_ASSIGN_OR_RETURN(*program, read(*path));
  }
  programs.malformed = malformed;
  return programs;
}

// What the verifier says, and what it rests on.
struct Verdict {
  GivenSetting given;
  Findings findings;
};

absl::StatusOr<Verdict> VerifyProgram(const Options& options, const Programs& programs) {
  const ConstProgramPair pair = {&programs.main, Programs::IfGiven(programs.startup)};
  Verdict verdict;
  WEFT_ASSIGN_OR_RETURN(verdict.given, SettingFor(options.setting, {options.file}, {pair},
                                                  Programs::IfGiven(programs.original)));
  VerifyOptions verify;
  verify.setting = verdict.given.setting;
  verify.original = {Programs::IfGiven(programs.original),
                     Programs::IfGiven(programs.original_startup)};
  verdict.findings = Verify({pair}, verify);
  return verdict;
}

// "wrong: 2 errors, for any number of ranks".
std::string VerdictOf(const Options& options, const Programs& programs, const Verdict& verdict) {
  const Findings& findings = verdict.findings;
  absl::optional<int> nranks = verdict.given.setting.nranks;
  if (!nranks.has_value()) {
    nranks = FindNumRanks(programs.main, Programs::IfGiven(programs.startup));
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

absl::Status ReadTimes(const Options& options, const Program& main, StepTimes* times) {
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

absl::Status View(const Options& options) {
  const std::vector<std::string> inputs = {
      options.file,    options.startup, options.original, options.original_startup,
      options.explain, options.trace,   options.profile,  options.comm_table};
  WEFT_RETURN_IF_ERROR(CheckOutputs(inputs, {options.page}));
  WEFT_ASSIGN_OR_RETURN(Programs programs, ReadAll(options));
  WEFT_RETURN_IF_ERROR(AssumeOps(options.setting.assume, {{&programs.main, options.file}}));
  if (programs.original.has_value()) AssumeAs(programs.main, &*programs.original);
  ViewOptions view;
  view.name = options.file;
  view.original = Programs::IfGiven(programs.original);
  std::vector<FileRemark> remarks;
  if (!options.explain.empty()) {
    WEFT_ASSIGN_OR_RETURN(remarks, ReadAs(options.explain, ParseRemarks));
    view.remarks = &remarks;
  }
  WEFT_ASSIGN_OR_RETURN(const Verdict verdict, VerifyProgram(options, programs));
  view.findings = &verdict.findings;
  view.verdict = VerdictOf(options, programs, verdict);
  view.predicts = IsWellFormed(verdict.findings);
  view.predict.batch = options.batch;
  WEFT_RETURN_IF_ERROR(ReadTimes(options, programs.main, &view.predict.times));
  if (!options.trace.empty()) {
    WEFT_ASSIGN_OR_RETURN(view.measured, ReadAs(options.trace, [&](absl::string_view text) {
                            return ReadTrace(text, programs.main);
                          }));
  }
  const ProgramView model = ProgramView::Of(programs.main, std::move(view));
  WEFT_ASSIGN_OR_RETURN(const std::string page, ViewPage(model));
  return Annotate(options.page, WriteFile(options.page, page));
}

void CheckFlags(const Options& options) {
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

Subcommand AddView(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "view",
      "Writes a page to look at: one HTML file for a browser, which needs no network. It shows "
      "the\n"
      "program by layers, what a rewrite changed and why, the findings of the verifier, and when\n"
      "ops run on streams and ranks.");
  auto options = std::make_shared<Options>();
  AddOption(*app, "file", "FILE", options->file, "The program; - is standard input")->required();
  AddOption(*app, "-o,--out", "PAGE.html", options->page, "The page; - is standard output")
      ->required();
  auto* original =
      AddOption(*app, "--original", "F", options->original, "The program before the rewrite");
  AddOption(*app, "--startup", "F", options->startup,
            "The startup program; without it, rings count as set up");
  AddOption(*app, "--original_startup", "F", options->original_startup,
            "The startup program before the rewrite")
      ->needs(original);
  AddOption(*app, "--remarks,--explain", "FILE.json", options->explain,
            "Why ops were inserted, of transpile --remarks")
      ->needs(original);
  AddOption(*app, "--trace", "FILE.json", options->trace,
            "When ops ran, of weft run --trace of this program");
  AddOption(*app, "--op_times,--profile", "FILE.json", options->profile,
            "Times of ops, of weft run --profile, for the prediction; default: estimated");
  AddOption(*app, "--comm_table", "FILE.json", options->comm_table,
            "Times of collectives, of weft comm_bench; default: 20 us and 4 GB/s");
  AddInteger(*app, "--batch", options->batch, 1, INT32_MAX,
             "Rows of a rank's batch, for estimated times")
      ->capture_default_str();
  AddSettingFlags(app, &options->setting, /*original=*/nullptr);
  app->callback([options] { CheckFlags(*options); });
  app->footer(
      "Example:\n"
      "  weft view out.pb --original main.pb --remarks why.json --trace trace.json -o page.html");
  return {app, [options] { return FinishCommand(kCommand, View(*options)); }};
}

}  // namespace weft
