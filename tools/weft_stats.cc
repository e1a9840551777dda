#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/program_stats.h"
#include "tools/weft_commands.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft stats";

absl::Status Stats(const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(const Program program, ReadProgramOrExplain(file));
  const absl::StatusOr<ProgramStats> stats = ComputeProgramStats(program);
  if (!stats.ok()) {
    return absl::Status(stats.status().code(), absl::StrCat(file, ": ", stats.status().message()));
  }
  std::fputs(ProgramStatsText(*stats).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Subcommand AddStats(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "stats", "Counts ops by type and role, parameters, gradients and what is communicated.");
  auto file = std::make_shared<std::string>();
  app->add_option("file", *file, "The program; - is standard input")->required()->type_name("FILE");
  app->footer("Example:\n  weft stats main.pb");
  return {app, [file] { return FinishCommand(kCommand, Stats(*file)); }};
}

}  // namespace weft
