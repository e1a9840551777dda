#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "proto/diff/program_diff.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/shown_program.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft diff";
constexpr int kExitDiffer = 1;

// Stands for the number of a rank in the names of its files, as for transpile --rank all.
constexpr char kRankInName[] = "{rank}";

struct Options {
  std::string a, b;
};

bool IsSet(const std::string& path) { return absl::StrContains(path, kRankInName); }

std::string FileOf(const std::string& path, size_t rank) {
  return absl::StrReplaceAll(path, {{kRankInName, absl::StrCat(rank)}});
}

// The files from rank 0 on that exist; at least one.
size_t NumRanks(const std::string& path) {
  size_t ranks = 1;
  while (access(FileOf(path, ranks).c_str(), F_OK) == 0) ++ranks;
  return ranks;
}

// Prints the differences, after a line that names the ranks, if there are several; true if there
// are any.
absl::StatusOr<bool> DiffFiles(const std::string& path_a, const std::string& path_b,
                               const std::string& title) {
  WEFT_ASSIGN_OR_RETURN(const ReadableProgram a, ReadProgramToShow(kCommand, path_a));
  WEFT_ASSIGN_OR_RETURN(const ReadableProgram b, ReadProgramToShow(kCommand, path_b));
  const std::vector<Difference> differences = DiffPrograms(a.program, b.program);
  const bool differ = !differences.empty() || a.malformed != b.malformed;
  if (differ) std::fputs(title.c_str(), stdout);
  std::fputs(DifferencesText(differences).c_str(), stdout);
  // What the warnings name does not stand in the programs.
  if (a.malformed != b.malformed) std::puts("malformed in other places: see the warnings");
  return differ;
}

// A set is compared rank by rank, with another one or with one program.
absl::StatusOr<bool> Diff(const Options& options) {
  const bool are_sets = IsSet(options.a) || IsSet(options.b);
  if (!are_sets) return DiffFiles(options.a, options.b, "");
  const size_t ranks = NumRanks(IsSet(options.a) ? options.a : options.b);
  if (IsSet(options.a) && IsSet(options.b) && NumRanks(options.b) != ranks) {
    return absl::InvalidArgumentError(absl::StrCat(options.b, ": expected programs of ", ranks,
                                                   " ranks, as ", options.a, " has, found ",
                                                   NumRanks(options.b)));
  }
  bool differ = false;
  for (size_t rank = 0; rank < ranks; ++rank) {
    WEFT_ASSIGN_OR_RETURN(const bool here,
                          DiffFiles(FileOf(options.a, rank), FileOf(options.b, rank),
                                    absl::StrCat("rank ", rank, ":\n")));
    differ = differ || here;
  }
  return differ;
}

}  // namespace

Subcommand AddDiff(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "diff",
      "Prints the differences between two programs. Exit status 1: they differ; 2: any error.\n"
      "With {rank} in a name, it stands for the programs of all ranks, which are compared one by\n"
      "one.");
  auto options = std::make_shared<Options>();
  AddOption(*app, "a", "A", options->a, "A program")->required();
  AddOption(*app, "b", "B", options->b, "Another program; one of the two may be - (standard input)")
      ->required();
  app->callback([options] { CheckStandardInput({{"A", options->a}, {"B", options->b}}); });
  app->footer(
      "Example:\n"
      "  weft diff main.pb transpiled.pb\n"
      "  weft diff 'before_{rank}.pb' 'after_{rank}.pb'");
  return {app,
          [options] {
            const absl::StatusOr<bool> differ = Diff(*options);
            const int done = differ.ok() && *differ ? kExitDiffer : kExitDone;
            return FinishCommand(kCommand, differ.status(), done, kExitTrouble);
          },
          kExitTrouble};
}

}  // namespace weft
