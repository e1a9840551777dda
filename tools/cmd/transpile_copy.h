// Copies of programs, which transpile makes without refusing anything that can be read.
#ifndef WEFT_TOOLS_CMD_TRANSPILE_COPY_H_
#define WEFT_TOOLS_CMD_TRANSPILE_COPY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/flags/said.h"

namespace weft {

// Reads the inputs of a copy; none if they are malformed, and copied already.
absl::StatusOr<absl::optional<std::vector<Program>>> ReadOrCopy(const TranspileFlags& flags);

// What the verifier finds in a copy.
std::vector<Said> SaidOfCopy(const TranspileFlags& flags, const ConstProgramPair& programs,
                             const Setting& setting);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TRANSPILE_COPY_H_
