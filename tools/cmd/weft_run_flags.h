// The flags of weft run.
#ifndef WEFT_TOOLS_CMD_WEFT_RUN_FLAGS_H_
#define WEFT_TOOLS_CMD_WEFT_RUN_FLAGS_H_

#include "CLI/CLI.hpp"
#include "tools/cmd/weft_run_files.h"

namespace weft {

void AddRunFlags(CLI::App& app, RunFlags& flags);

// Checks combinations of flags. Throws CLI::ValidationError.
void CheckRunFlags(const CLI::App& app, RunFlags& flags);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_RUN_FLAGS_H_
