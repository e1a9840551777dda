// Whether a step fits the memory that a rank has.
#ifndef WEFT_TOOLS_CMD_MEMORY_ADVICE_H_
#define WEFT_TOOLS_CMD_MEMORY_ADVICE_H_

#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/flags/said.h"

namespace weft {

// A warning if a step of `written` takes more than TranspileFlags::rank_memory. Where ranks reduce
// gradients in each step, it names the first stage of sharding that fits and what that sends; if
// none fits, the one that takes least. Memory is PredictRunMemory with TranspileFlags::batch.
// `original`: as read; it is rewritten for each stage.
absl::optional<Said> SaidOfMemory(const TranspileFlags& flags, const ProgramPair& original,
                                  const Program& written, const Setting& setting);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_MEMORY_ADVICE_H_
