#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "base/annotate.h"
#include "base/status_macros.h"
#include "tools/program_stats.h"
#include "tools/weft_commands.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft stats";

struct Options {
  std::string file;
  int64_t batch = 1;
};

absl::Status Stats(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const Program program, ReadProgramOrExplain(options.file));
  const absl::StatusOr<ProgramStats> stats = ComputeProgramStats(program, options.batch);
  WEFT_RETURN_IF_ERROR(Annotate(options.file, stats.status()));
  std::fputs(ProgramStatsText(*stats).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Subcommand AddStats(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "stats",
      "Counts ops by type and role, parameters, gradients and bytes communicated; estimates peak "
      "memory.");
  auto options = std::make_shared<Options>();
  AddOption(*app, "file", "FILE", options->file, "The program; - is standard input")->required();
  AddInteger(*app, "--batch", options->batch, 1, std::numeric_limits<int64_t>::max(),
             "Rows of a rank's batch; replaces unknown first dimensions")
      ->capture_default_str();
  app->footer(
      "Communication is the input of all collectives of a step. Collectives of conditional blocks\n"
      "are listed separately, with the period in which they run if their condition counts steps.\n"
      "Padding in fused buffers counts if the program declares it.\n\n"
      "Peak memory assumes that every variable is alive from the first op that names it to the\n"
      "last, and persistable variables always, with the declared sizes. It does not include\n"
      "workspaces of kernels and overhead of allocators. weft run needs more: it keeps all\n"
      "variables until it ends.\n\n"
      "Example:\n  weft stats main.pb --batch 32");
  return {app, [options] { return FinishCommand(kCommand, Stats(*options)); }};
}

}  // namespace weft
