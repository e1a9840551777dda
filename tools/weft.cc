// weft: runs, verifies, prints, diffs and plans training programs, and reports their statistics.
#include <new>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "proto/formats/program_file.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/command_line.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Runs, evaluates, verifies, prints, draws, diffs and plans training programs (Paddle\n"
      "ProgramDesc), and reports their statistics.",
      "weft");
  app.footer(absl::StrCat(
      "Program files:\n  ", weft::kProgramFileNames,
      "\n"
      "Exit status: 0 done; 1 the input is bad or a check failed; 2 wrong usage (diff: 1 the\n"
      "programs differ, 2 any error).\n\n"
      "Example:\n  weft run main.pb --startup startup.pb --feeds feeds.npz --ranks 2"));
  app.require_subcommand(1);
  const std::vector<weft::Subcommand> commands = {
      weft::AddRun(&app),
      weft::AddEval(&app),
      weft::AddLaunch(&app, weft::TakeLaunchedCommand(&argc, argv)),
      weft::AddShow(&app),
      weft::AddDiff(&app),
      weft::AddStats(&app),
      weft::AddVerify(&app),
      weft::AddPlan(&app),
      weft::AddView(&app),
      weft::AddCommBench(&app)};
  if (absl::optional<int> status = weft::ParseCommandLine(app, argc, argv)) return *status;
  for (const weft::Subcommand& command : commands) {
    if (!command.app->parsed()) continue;
    try {
      return command.run();
    } catch (const std::bad_alloc&) {
      weft::PrintError("weft", "out of memory");
      return weft::kExitFailed;
    }
  }
  return weft::kExitUsage;
}
