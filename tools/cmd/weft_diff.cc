#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "proto/diff/program_diff.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/shown_program.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft diff";
constexpr int kExitDiffer = 1;

struct Options {
  std::string a, b;
};

// Prints the differences; true if there are any.
absl::StatusOr<bool> Diff(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const ReadableProgram a, ReadProgramToShow(kCommand, options.a));
  WEFT_ASSIGN_OR_RETURN(const ReadableProgram b, ReadProgramToShow(kCommand, options.b));
  const std::vector<Difference> differences = DiffPrograms(a.program, b.program);
  std::fputs(DifferencesText(differences).c_str(), stdout);
  // What the warnings name does not stand in the programs.
  if (a.malformed != b.malformed) std::puts("malformed in other places: see the warnings");
  return !differences.empty() || a.malformed != b.malformed;
}

}  // namespace

Subcommand AddDiff(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "diff",
      "Prints the differences between two programs. Exit status 1: they differ; 2: any error.");
  auto options = std::make_shared<Options>();
  AddOption(*app, "a", "A", options->a, "A program")->required();
  AddOption(*app, "b", "B", options->b, "Another program; one of the two may be - (standard input)")
      ->required();
  app->callback([options] { CheckStandardInput({{"A", options->a}, {"B", options->b}}); });
  app->footer("Example:\n  weft diff main.pb transpiled.pb");
  return {app,
          [options] {
            const absl::StatusOr<bool> differ = Diff(*options);
            const int done = differ.ok() && *differ ? kExitDiffer : kExitDone;
            return FinishCommand(kCommand, differ.status(), done, kExitTrouble);
          },
          kExitTrouble};
}

}  // namespace weft
