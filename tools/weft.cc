// weft: runs, verifies, prints, diffs and plans training programs, and reports their statistics.
#include <cstring>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "proto/formats/program_file.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/command_line.h"

namespace weft {
namespace {

int Main(int argc, char** argv, int* failed) {
  CLI::App app(
      "Runs, evaluates, verifies, prints, draws, diffs and plans training programs (Paddle\n"
      "ProgramDesc), and reports their statistics.",
      "weft");
  app.footer(absl::StrCat(
      "Program files:\n  ", kProgramFileNames,
      "\n"
      "Exit status: 0 done; 1 the input is bad or a check failed; 2 wrong usage (diff: 1 the\n"
      "programs differ, 2 any error).\n\n"
      "Example:\n  weft run main.pb --startup startup.pb --feeds feeds.npz --ranks 2"));
  app.require_subcommand(1);
  const std::vector<Subcommand> commands = {
      AddRun(&app),      AddEval(&app), AddLaunch(&app, TakeLaunchedCommand(&argc, argv)),
      AddShow(&app),     AddDiff(&app), AddStats(&app),
      AddVerify(&app),   AddPlan(&app), AddView(&app),
      AddCommBench(&app)};
  if (absl::optional<int> status = ParseCommandLine(app, argc, argv)) return *status;
  for (const Subcommand& command : commands) {
    if (!command.app->parsed()) continue;
    *failed = command.failed;
    return command.run();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  // Until the command is known by its command line.
  int failed =
      argc > 1 && std::strcmp(argv[1], "diff") == 0 ? weft::kExitTrouble : weft::kExitFailed;
  return weft::RunTool("weft", failed, [&] { return weft::Main(argc, argv, &failed); });
}
