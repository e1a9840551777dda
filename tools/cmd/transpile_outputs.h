// The files that transpile writes: staged first, so that they change together or not at all.
#ifndef WEFT_TOOLS_CMD_TRANSPILE_OUTPUTS_H_
#define WEFT_TOOLS_CMD_TRANSPILE_OUTPUTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "proto/formats/program_file.h"
#include "transpiler/transpile.h"

namespace weft {

// The files that a run writes for one trainer. Empty: none.
struct OutputPaths {
  std::string main, startup, server, explain;
};

// What --remarks writes.
std::string ExplainJson(const TranspileResult& result);

// Files that are written, but do not have their names yet.
struct StagedOutputs {
  StagedPrograms programs;
  absl::optional<StagedPrograms> server;
  absl::optional<AtomicFile> explain;
  std::string explain_path;
  absl::optional<AtomicFile> setting;
  std::string setting_path;

  // As of AtomicFile.
  absl::Status Replace();
  void Keep();
};

// Stages the explanation, the setting of a main program whose file does not carry it, and the
// program of the parameter servers, which exists only when the others are verified.
// InvalidArgument if there is one without a path, or none for a path.
absl::StatusOr<StagedOutputs> StageAll(absl::StatusOr<StagedPrograms> programs,
                                       const OutputPaths& paths, const TranspileResult& result,
                                       const Program& main);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TRANSPILE_OUTPUTS_H_
