// What the verifier knows of a rank before it follows the values of its programs.
#ifndef WEFT_TRANSPILER_VERIFIER_VALUE_OPTIONS_H_
#define WEFT_TRANSPILER_VERIFIER_VALUE_OPTIONS_H_

#include <cstddef>
#include <vector>

#include "absl/types/optional.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program_pair.h"
#include "proto/setting.h"

namespace weft {

// The number of ranks: as given, or as the programs say, or as many as there are programs, if more
// than one.
absl::optional<int> NumRanks(const Setting& setting, const ConstProgramPair& programs,
                             size_t num_programs);

// The options of RankValues::Of the main program. They refer to `start`, which holds what the
// startup program computes, unless one process runs it for all ranks; `batch` is null.
// `setting`: with the number of ranks, of `group` if given (RankValuesOptions::group).
RankValuesOptions ValueOptions(const Setting& setting, const ConstProgramPair& programs,
                               StartupValues* start, const std::vector<int>& group = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_VALUE_OPTIONS_H_
