// Whether a step fits the memory that a rank has.
#ifndef WEFT_TOOLS_CMD_RANK_MEMORY_H_
#define WEFT_TOOLS_CMD_RANK_MEMORY_H_

#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/flags/said.h"

namespace weft {

// A warning if a step of `written` takes more than TranspileFlags::rank_memory, with the stage of
// sharding that fits and what it sends, or, if none fits, the one that takes least. Memory is
// EstimatePeakMemory with TranspileFlags::batch. `original`: as read; rewritten anew for each
// stage.
absl::optional<Said> SaidOfMemory(const TranspileFlags& flags, const ProgramPair& original,
                                  const Program& written, absl::optional<int> ranks);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_RANK_MEMORY_H_
