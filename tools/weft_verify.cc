#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/runner.h"
#include "ops/analysis/num_ranks.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "tools/findings_json.h"
#include "tools/numeric/numeric_check.h"
#include "tools/weft_commands.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft verify";
// The number of ranks to run if the programs do not specify one.
constexpr int kRanksToRun = 2;

struct Options {
  std::vector<std::string> mains, startups;
  std::string original, original_startup;
  int nranks = 0;  // 0: not given
  std::vector<std::string> distributed_params;
  bool summed_gradients = false;
  absl::optional<int> k_steps, begin_step;
  bool numeric = false;
  int64_t steps = 2;
  std::string format = "text";
  bool short_lines = false;
};

absl::StatusOr<std::vector<Program>> ReadAll(const std::vector<std::string>& paths) {
  std::vector<Program> programs;
  for (const std::string& path : paths) {
    WEFT_ASSIGN_OR_RETURN(Program program, ReadProgramOrExplain(path));
    programs.push_back(std::move(program));
  }
  return programs;
}

absl::StatusOr<absl::optional<Program>> ReadIfGiven(const std::string& path) {
  if (path.empty()) return absl::nullopt;
  WEFT_ASSIGN_OR_RETURN(Program program, ReadProgramOrExplain(path));
  return program;
}

// All programs of a command; `ranks` points to them.
struct Programs {
  std::vector<Program> mains, startups;
  absl::optional<Program> original, original_startup;
  std::vector<ConstProgramPair> ranks;

  ConstProgramPair Original() const {
    return {original.has_value() ? &*original : nullptr,
            original_startup.has_value() ? &*original_startup : nullptr};
  }
};

absl::StatusOr<std::unique_ptr<Programs>> Read(const Options& options) {
  auto programs = std::make_unique<Programs>();
  WEFT_ASSIGN_OR_RETURN(programs->mains, ReadAll(options.mains));
  WEFT_ASSIGN_OR_RETURN(programs->startups, ReadAll(options.startups));
  WEFT_ASSIGN_OR_RETURN(programs->original, ReadIfGiven(options.original));
  WEFT_ASSIGN_OR_RETURN(programs->original_startup, ReadIfGiven(options.original_startup));
  const std::vector<Program>& startups = programs->startups;
  for (size_t i = 0; i < programs->mains.size(); ++i) {
    ConstProgramPair rank;
    rank.main = &programs->mains[i];
    if (!startups.empty()) rank.startup = &startups[startups.size() == 1 ? 0 : i];
    programs->ranks.push_back(rank);
  }
  return programs;
}

VerifyOptions OptionsOfVerifier(const Options& options, const Programs& programs) {
  VerifyOptions verify;
  if (options.nranks > 0) verify.nranks = options.nranks;
  verify.distributed_params.insert(options.distributed_params.begin(),
                                   options.distributed_params.end());
  verify.gradients_are_summed = options.summed_gradients;
  if (options.k_steps.has_value() || options.begin_step.has_value()) {
    verify.averaging =
        AveragingSchedule{options.k_steps.value_or(1), options.begin_step.value_or(1)};
  }
  verify.original = programs.Original();
  return verify;
}

// None if not requested.
absl::StatusOr<absl::optional<NumericReport>> RunBoth(const Options& options,
                                                      const Programs& programs) {
  if (!options.numeric) return absl::nullopt;
  const ConstProgramPair& rewritten = programs.ranks[0];
  NumericOptions numeric;
  numeric.kernels = &CpuKernels();
  numeric.steps = options.steps;
  numeric.nranks = options.nranks > 0
                       ? options.nranks
                       : FindNumRanks(*rewritten.main, rewritten.startup).value_or(kRanksToRun);
  const absl::StatusOr<NumericReport> report =
      CheckNumerically(programs.Original(), rewritten, numeric);
  WEFT_RETURN_IF_ERROR(Annotate("--numeric", report.status()));
  return *report;
}

// --- Text ---------------------------------------------------------------------------------------

// The line of program text of an op, with its position.
void PrintOp(const Program& program, OpId id) {
  if (!id.valid()) return;
  const Op op = program.op(id);
  PrintOptions options;
  options.attrs = PrintOptions::Attrs::kShort;
  options.callstack = false;
  const std::string block = op.block() == 0 ? "" : absl::StrCat("block ", op.block(), ", ");
  std::printf("    %sop %u: %s\n", block.c_str(), op.position(), OpText(op, options).c_str());
}

void Print(const Finding& finding, const std::vector<ConstProgramPair>& ranks, bool short_lines) {
  std::printf("%s\n", ToString(finding, ranks.size() == 1).c_str());
  if (short_lines) return;
  const ConstProgramPair& programs = ranks[finding.program.rank];
  const Program& program = finding.program.is_startup ? *programs.startup : *programs.main;
  if (finding.other != finding.op) PrintOp(program, finding.other);
  PrintOp(program, finding.op);
  std::printf("    see docs/verifier.md#%s\n", absl::AsciiStrToLower(finding.rule).c_str());
}

// "2 errors, 1 warning"; empty where there is nothing.
std::string Counts(const Findings& findings) {
  int64_t counts[3] = {};
  for (const Finding& finding : findings.all()) ++counts[static_cast<int>(finding.severity)];
  for (const Rule& rule : Rules()) {
    counts[static_cast<int>(rule.severity)] += findings.NumOmitted(rule.id);
  }
  std::vector<std::string> parts;
  for (Severity severity : {Severity::kError, Severity::kWarning, Severity::kNote}) {
    const int64_t count = counts[static_cast<int>(severity)];
    if (count == 0) continue;
    parts.push_back(absl::StrCat(count, " ", SeverityName(severity), count == 1 ? "" : "s"));
  }
  return absl::StrJoin(parts, ", ");
}

void PrintText(const Findings& findings, const std::vector<ConstProgramPair>& ranks,
               const absl::optional<NumericReport>& numeric, bool short_lines) {
  for (const Finding& finding : findings.all()) Print(finding, ranks, short_lines);
  for (const Rule& rule : Rules()) {
    const int64_t omitted = findings.NumOmitted(rule.id);
    if (omitted == 0) continue;
    std::printf("%s: %lld more like these\n", rule.id, static_cast<long long>(omitted));
  }
  if (numeric.has_value()) std::printf("numeric: %s", NumericReportText(*numeric).c_str());
  const bool differs = numeric.has_value() && !numeric->IsEqual();
  std::string counts = Counts(findings);
  if (differs) {
    absl::StrAppend(&counts, counts.empty() ? "" : ", ", "the result differs from the original");
  }
  std::printf("%s%s%s\n", findings.HasErrors() || differs ? "wrong" : "verified",
              counts.empty() ? "" : ": ", counts.c_str());
}

// --- The command --------------------------------------------------------------------------------

// True if nothing is wrong.
absl::StatusOr<bool> Verify(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Programs> programs, Read(options));
  const Findings findings = Verify(programs->ranks, OptionsOfVerifier(options, *programs));
  // A program that breaks a rule of layer 1 or 2 may not run. Then the findings matter more than
  // the reason.
  absl::StatusOr<absl::optional<NumericReport>> numeric = RunBoth(options, *programs);
  if (!numeric.ok() && !findings.HasErrors()) return numeric.status();
  if (!numeric.ok()) {
    PrintWarning(kCommand, numeric.status().message());
    numeric = absl::optional<NumericReport>();
  }
  if (options.format == "json") {
    const NumericReport* report = numeric->has_value() ? &**numeric : nullptr;
    std::fputs(FindingsJson(findings, programs->ranks, report).c_str(), stdout);
  } else {
    PrintText(findings, programs->ranks, *numeric, options.short_lines);
  }
  return !findings.HasErrors() && (!numeric->has_value() || (*numeric)->IsEqual());
}

// Standard input can be read once.
void CheckStandardInput(const Options& options) {
  const char* reader = nullptr;
  const auto check = [&](const char* flag, const std::string& path) {
    if (path != "-") return;
    if (reader != nullptr) {
      throw CLI::ValidationError(flag, absl::StrCat(reader, " already reads standard input"));
    }
    reader = flag;
  };
  for (const std::string& path : options.mains) check("MAIN", path);
  for (const std::string& path : options.startups) check("--startup", path);
  check("--original", options.original);
  check("--original_startup", options.original_startup);
}

// Checks combinations of flags.
void CheckFlags(const Options& options) {
  CheckStandardInput(options);
  const size_t mains = options.mains.size(), startups = options.startups.size();
  if (!options.original_startup.empty() && startups == 0 && !options.numeric) {
    throw CLI::ValidationError("--original_startup",
                               "expected --startup, with which it is compared");
  }
  if (startups > 1 && startups != mains) {
    throw CLI::ValidationError("--startup", absl::StrCat("expected one, or ", mains,
                                                         ", one per program, found ", startups));
  }
  if (mains > 1 && options.nranks > 0 && static_cast<size_t>(options.nranks) != mains) {
    throw CLI::ValidationError(
        "--nranks",
        absl::StrCat("expected ", mains, ", the number of programs, found ", options.nranks));
  }
  if (options.short_lines && options.format != "text") {
    throw CLI::ValidationError("--short", "works with --format text only");
  }
  if (!options.numeric) return;
  if (mains > 1) {
    throw CLI::ValidationError("--numeric", "accepts one program, which all ranks run");
  }
  if (options.nranks > kMaxRanks) {
    throw CLI::ValidationError("--nranks", absl::StrCat("expected at most ", kMaxRanks,
                                                        " to run, found ", options.nranks));
  }
  if (options.summed_gradients || !options.distributed_params.empty()) {
    throw CLI::ValidationError("--numeric",
                               "requires gradients averaged over the ranks, and replicated "
                               "parameters");
  }
}

}  // namespace

Subcommand AddVerify(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "verify",
      "Proves that a program is correct on many ranks: no data race, no deadlock, every gradient\n"
      "reduced once. With --original: that it computes what the original computes. Exit status 1:\n"
      "it is wrong.");
  auto options = std::make_shared<Options>();
  app->add_option("mains", options->mains, "One program for all ranks, or one per rank, in order")
      ->required()
      ->type_name("MAIN");
  app->add_option("--startup", options->startups,
                  "The startup program, or one per rank; without it, rings count as set up")
      ->type_name("F");
  app->add_option("--nranks", options->nranks,
                  "Number of ranks; default: as the programs say, else any number")
      ->check(IntegerFrom(1, std::numeric_limits<int>::max()))
      ->type_name("N");
  auto* original =
      app->add_option("--original", options->original, "The program before the rewrite")
          ->type_name("F");
  app->add_option("--distributed_params", options->distributed_params,
                  "Comma-separated parameters that are sharded over the ranks")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("A,B");
  app->add_flag("--summed_gradients", options->summed_gradients,
                "Expect gradients summed over the ranks, not averaged");
  const auto add_steps = [&](const char* flag, absl::optional<int>* value, const char* help) {
    app->add_option(flag, *value, help)
        ->check(IntegerFrom(1, std::numeric_limits<int>::max()))
        ->needs(original)
        ->type_name("N");
  };
  add_steps("--k_steps", &options->k_steps, "Expected averaging period of LocalSGD, in steps");
  add_steps("--begin_step", &options->begin_step, "Expected first averaging step of LocalSGD");
  auto* numeric = app->add_flag(
      "--numeric", options->numeric,
      "Also run both programs on small random data, the original on one rank with the global "
      "batch (2 ranks by default), and compare persistable variables");
  numeric->needs(original);
  app->add_option(
         "--original_startup", options->original_startup,
         "The startup program before the rewrite, compared too; with --numeric, it sets the "
         "initial state (default: 0)")
      ->needs(original)
      ->type_name("F");
  app->add_option("--steps", options->steps, "Steps of these runs")
      ->check(IntegerFrom(1, 1000))
      ->capture_default_str()
      ->needs(numeric)
      ->type_name("N");
  app->add_option("--format", options->format, "json: findings as JSON")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->add_flag("--short", options->short_lines, "One line per finding, without the ops");
  app->callback([options] { CheckFlags(*options); });
  app->footer(
      "docs/verifier.md explains the rules.\n\n"
      "Examples:\n"
      "  weft verify out.pb --startup out_startup.pb --original main.pb\n"
      "  weft verify rank0.pb rank1.pb --startup startup0.pb --startup startup1.pb");
  return {app, [options] {
            const absl::StatusOr<bool> right = Verify(*options);
            const int done = right.ok() && !*right ? kExitFailed : kExitDone;
            return FinishCommand(kCommand, right.status(), done, kExitFailed);
          }};
}

}  // namespace weft
