#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
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
      "Counts ops by type and role, parameters, gradients and what is communicated; estimates peak "
      "memory.");
  auto options = std::make_shared<Options>();
  app->add_option("file", options->file, "The program; - is standard input")
      ->required()
      ->type_name("FILE");
  app->add_option("--batch", options->batch,
                  "Rows of a rank's batch: what an unknown first dimension counts as")
      ->check(IntegerFrom(1, std::numeric_limits<int64_t>::max()))
      ->capture_default_str()
      ->type_name("N");
  app->footer(
      "Communication is what a step hands to collectives if all of them run. Those of conditional\n"
      "blocks are told apart, with the steps in which they run where the condition counts steps.\n"
      "Padding in fused buffers counts as far as the program says it.\n\n"
      "Peak memory is what a step needs at once if every variable is there from the first op that\n"
      "names it to the last, and persistable variables throughout, in the sizes that the program\n"
      "declares. What kernels and allocators take besides does not count, and weft run keeps all\n"
      "variables until it ends.\n\n"
      "Example:\n  weft stats main.pb --batch 32");
  return {app, [options] { return FinishCommand(kCommand, Stats(*options)); }};
}

}  // namespace weft
