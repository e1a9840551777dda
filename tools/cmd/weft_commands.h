// The subcommands of weft, one per file. Each adds itself to the options of the tool; its help text
// describes it.
#ifndef WEFT_TOOLS_CMD_WEFT_COMMANDS_H_
#define WEFT_TOOLS_CMD_WEFT_COMMANDS_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tools/flags/command_line.h"

namespace weft {

inline constexpr int kExitTrouble = 2;  // of weft diff: any error

struct RunInputs;
struct RunOptions;
// Changes a run before it begins, in each generation of an elastic job: tests inject faults.
using RunDecorator = std::function<void(RunInputs*, RunOptions*)>;

// weft_run.cc: trains a program
Subcommand AddRun(CLI::App* weft, RunDecorator decorate = nullptr);
Subcommand AddEval(CLI::App* weft);  // weft_eval.cc: evaluates a test program
// weft_launch.cc: starts a command several times
Subcommand AddLaunch(CLI::App* weft, std::vector<std::string> command);
// If the arguments are those of weft launch, removes the command from them: what follows "--". It
// is not ours to parse.
std::vector<std::string> TakeLaunchedCommand(int* argc, char** argv);
Subcommand AddShow(CLI::App* weft);       // weft_show.cc: prints or draws a program
Subcommand AddDiff(CLI::App* weft);       // weft_diff.cc: prints the differences of two programs
Subcommand AddStats(CLI::App* weft);      // weft_stats.cc: prints statistics of a program
Subcommand AddVerify(CLI::App* weft);     // weft_verify.cc: proves a program
Subcommand AddPlan(CLI::App* weft);       // weft_plan.cc: prints buckets of gradients
Subcommand AddView(CLI::App* weft);       // weft_view.cc: writes a page to look at
Subcommand AddCommBench(CLI::App* weft);  // weft_comm_bench.cc: measures collectives

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_COMMANDS_H_
