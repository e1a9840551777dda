#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/program_text.h"
#include "tools/weft_commands.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft verify";

struct Options {
  std::vector<std::string> mains, startups;
  std::string original, original_startup;
  int nranks = 0;  // 0: not given
  std::vector<std::string> distributed_params;
  bool summed_gradients = false;
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

// The line of program text of an op.
void PrintOp(const Program& program, OpId id) {
  if (!id.valid()) return;
  std::printf("    %s\n", OpText(program.op(id)).c_str());
}

void Print(const Finding& finding, const std::vector<RankPrograms>& ranks, bool short_lines) {
  std::printf("%s\n", ToString(finding, ranks.size() == 1).c_str());
  if (short_lines) return;
  const RankPrograms& programs = ranks[finding.program.rank];
  const Program& program = finding.program.is_startup ? *programs.startup : *programs.main;
  PrintOp(program, finding.other);
  PrintOp(program, finding.op);
}

// True where nothing is wrong.
absl::StatusOr<bool> Verify(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Program> mains, ReadAll(options.mains));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Program> startups, ReadAll(options.startups));
  std::vector<std::string> originals;
  if (!options.original.empty()) originals.push_back(options.original);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Program> original, ReadAll(originals));

  VerifyOptions verify;
  if (options.nranks > 0) verify.nranks = options.nranks;
  verify.distributed_params.insert(options.distributed_params.begin(),
                                   options.distributed_params.end());
  verify.gradients_are_summed = options.summed_gradients;
  if (!original.empty()) verify.original.main = &original[0];
  std::vector<RankPrograms> ranks;
  for (size_t i = 0; i < mains.size(); ++i) {
    RankPrograms programs;
    programs.main = &mains[i];
    if (!startups.empty()) programs.startup = &startups[startups.size() == 1 ? 0 : i];
    ranks.push_back(programs);
  }
  const Findings findings = Verify(ranks, verify);
  int errors = 0;
  for (const Finding& finding : findings.all()) {
    errors += finding.severity == Severity::kError ? 1 : 0;
    Print(finding, ranks, options.short_lines);
  }
  for (const Rule& rule : Rules()) {
    const int64_t omitted = findings.NumOmitted(rule.id);
    if (omitted > 0) std::printf("%s: %lld more\n", rule.id, static_cast<long long>(omitted));
  }
  std::printf("%s\n", findings.HasErrors() ? "wrong" : "verified");
  return !findings.HasErrors();
}

}  // namespace

Subcommand AddVerify(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand("verify",
                                       "Proves that a program is right for many ranks: no race, no "
                                       "deadlock, every gradient reduced\n"
                                       "once. With --original: that it computes what the original "
                                       "computes. Exit status 1: findings.");
  auto options = std::make_shared<Options>();
  app->add_option("mains", options->mains, "One program for all ranks, or one per rank, in order")
      ->required()
      ->type_name("MAIN");
  app->add_option("--startup", options->startups,
                  "The startup program, or one per rank. Without: rings count as set up")
      ->type_name("F");
  app->add_option("--nranks", options->nranks,
                  "The number of ranks. Default: what the programs say")
      ->check(IntegerFrom(1, INT32_MAX));
  app->add_option("--original", options->original, "The program before the rewrite")
      ->type_name("F");
  app->add_option("--distributed_params", options->distributed_params,
                  "Parameters of which each rank has a part")
      ->delimiter(',');
  app->add_flag("--summed_gradients", options->summed_gradients,
                "Gradients are to be summed over the ranks, not averaged");
  app->add_flag("--short", options->short_lines, "Without the lines of program text");
  app->callback([options] {
    const size_t startups = options->startups.size();
    if (startups > 1 && startups != options->mains.size()) {
      throw CLI::ValidationError("--startup", "expected one, or as many as there are programs");
    }
  });
  app->footer("Example:\n  weft verify out.pb --startup out_startup.pb --original in.pb");
  return {app, [options] {
            const absl::StatusOr<bool> right = Verify(*options);
            const int done = right.ok() && !*right ? kExitFailed : kExitDone;
            return FinishCommand(kCommand, right.status(), done, kExitFailed);
          }};
}

}  // namespace weft
