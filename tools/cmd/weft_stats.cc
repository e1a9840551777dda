#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/run/memory_estimate.h"
#include "executor/run/runner.h"
#include "executor/servers/server_part.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/devices/parameter_bytes.h"
#include "tools/cmd/program_texts.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/shown_program.h"
#include "tools/inspect/program_stats.h"
#include "tools/inspect/run_memory.h"
#include "tools/inspect/run_report.h"
#include "tools/inspect/server_stats.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft stats";

// What weft run would print about memory, or why it does not run the program.
std::string MemoryText(const Program& program, int64_t batch) {
  const absl::StatusOr<MemoryEstimate> estimate = PredictRunMemory(program, batch);
  if (!estimate.ok()) {
    return absl::StrCat("weft run does not run it: ", estimate.status().message(), "\n");
  }
  std::string text =
      absl::StrCat("in weft run, for a batch of ", batch, ", ", MemoryLine(estimate->memory));
  if (estimate->num_unknown > 0) {
    absl::StrAppend(&text, "  not counted: ", estimate->num_unknown,
                    " variables whose types depend on values\n");
  }
  return text;
}

// What each element of a parameter takes in each memory, with gradient and state.
std::string ParameterBytesText(const Program& program) {
  const ParameterBytes bytes = FindParameterBytes(program);
  if (bytes.elements == 0) return "";
  std::string text = absl::StrFormat(
      "an element of a parameter takes, with master weight, state and gradient, %.2f bytes",
      bytes.Of(DeviceKind::kAccelerator));
  if (IsOnTwoDevices(program)) {
    absl::StrAppendFormat(&text, " on the accelerator, %.2f on the host",
                          bytes.Of(DeviceKind::kHost));
  }
  return text + "\n";
}

// Of a program for workers, or for servers.
absl::StatusOr<std::string> ServersText(const Program& program, const StatsFlags& options) {
  const int num_servers = static_cast<int>(options.servers);
  const absl::StatusOr<ServedKeys> keys = FindServedKeys(program);
  if (keys.ok() && !keys->empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<ServedBytes> servers,
                          PredictServedBytes(program, std::max(num_servers, 1)));
    return ServedBytesText(servers);
  }
  const std::map<int64_t, KeyTraffic> traffic = PredictServerTraffic(program, options.batch);
  if (traffic.empty() && num_servers > 0) {
    return absl::InvalidArgumentError(
        "--servers: expected a program that exchanges values with parameter servers, found none");
  }
  return ServerTrafficText(traffic, num_servers);
}

absl::Status Stats(const StatsFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const ReadableProgram read, ReadProgramToShow(kCommand, flags.file));
  std::vector<Said> said;
  WEFT_ASSIGN_OR_RETURN(const std::string text, StatsText(flags, read.program, &said));
  for (const Said& line : said) Print(kCommand, line);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddStatsFlags(CLI::App* app, StatsFlags* flags) {
  AddOption(*app, "file", "FILE", flags->file, "The program; - is standard input")->required();
  AddInteger(*app, "--batch", flags->batch, 1, std::numeric_limits<int64_t>::max(),
             "Rows of a rank's batch; replaces unknown first dimensions")
      ->capture_default_str();
  AddInteger(
      *app, "--servers", flags->servers, 1, kMaxRanks,
      "Number of parameter servers; prints the share of each. Default: 1 for a program of servers");
}

absl::StatusOr<std::string> StatsText(const StatsFlags& flags, const Program& program,
                                      std::vector<Said>* said) {
  const ProgramStats stats = ComputeProgramStats(program, flags.batch);
  for (const std::string& line : stats.malformed) {
    said->push_back({Severity::kWarning, absl::StrCat(flags.file, ": ", line),
                     /*names_command=*/true});
  }
  const absl::StatusOr<std::string> servers = ServersText(program, flags);
  WEFT_RETURN_IF_ERROR(Annotate(flags.file, servers.status()));
  return absl::StrCat(ProgramStatsText(stats), *servers, ParameterBytesText(program),
                      MemoryText(program, flags.batch));
}

Subcommand AddStats(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "stats",
      "Counts ops by type and role, parameters, gradients and bytes communicated; estimates peak "
      "memory.");
  auto options = std::make_shared<StatsFlags>();
  AddStatsFlags(app, options.get());
  app->footer(
      "Communication counts the input of all collectives of a step. Collectives of conditional\n"
      "blocks are listed separately, with the period in which they run if their condition counts\n"
      "steps. Padding in fused buffers counts if the program declares it.\n\n"
      "For a program for workers of parameter servers, it prints what a worker sends and receives\n"
      "in a step: the elements of tensors, and 8 bytes for the index of each row. For a program\n"
      "for servers, it prints what they hold.\n\n"
      "Peak memory assumes that every variable is alive from the first op that names it to the\n"
      "last, and persistable variables always, with the declared sizes, and that no two variables\n"
      "share memory. The last line is what weft run will print: values that do not live at the "
      "same\n"
      "time share memory, and so do values of ops that work in place. Neither includes workspaces\n"
      "of kernels and overhead of allocators.\n\n"
      "Example:\n  weft stats main.pb --batch 32");
  return {app, [options] { return FinishCommand(kCommand, Stats(*options)); }};
}

}  // namespace weft
