// What commands print of programs in memory.
#ifndef WEFT_TOOLS_CMD_PROGRAM_TEXTS_H_
#define WEFT_TOOLS_CMD_PROGRAM_TEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "proto/program.h"
#include "tools/flags/said.h"
#include "tools/flags/setting_flags.h"

namespace weft {

// weft stats. `file`: the name of the program in messages.
struct StatsFlags {
  std::string file;
  int64_t batch = 1;
  int64_t servers = 0;  // 0: not given
};
void AddStatsFlags(CLI::App* app, StatsFlags* flags);
// Adds what is malformed to `said`. Errors begin with the name of the program.
absl::StatusOr<std::string> StatsText(const StatsFlags& flags, const Program& program,
                                      std::vector<Said>* said);

// weft plan, of a program.
struct PlanFlags {
  std::string file, gradients, buckets = "bytes", profile, comm_table, svg, why, param_attrs;
  int nrings = 1;
  int nranks = 0;  // 0: not given
  int64_t batch = 32;
};
// The flags and their checks.
void AddPlanFlags(CLI::App* app, PlanFlags* flags);
// FailedPrecondition for a program whose gradients are reduced already. Errors begin with the name
// of the program, with a flag, or with the file of one. Writes --svg.
absl::StatusOr<std::string> PlanText(const PlanFlags& flags, Program program,
                                     std::vector<Said>* said);

// weft view. `malformed`: the number of malformed parts of the files that were read.
struct ViewFlags {
  std::string file, startup, original, original_startup, explain, trace, profile, comm_table, page;
  SettingFlags setting;
  int64_t batch = 32;
};
struct ViewedPrograms {
  Program main;
  absl::optional<Program> startup, original, original_startup;
  int64_t malformed = 0;

  static const Program* IfGiven(const absl::optional<Program>& program) {
    return program.has_value() ? &*program : nullptr;
  }
};
// The flags and their checks.
void AddViewFlags(CLI::App* app, ViewFlags* flags);
// The page, as HTML. Errors begin with the name of a program, or with the file of a flag.
absl::StatusOr<std::string> PageText(const ViewFlags& flags, ViewedPrograms programs);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_PROGRAM_TEXTS_H_
