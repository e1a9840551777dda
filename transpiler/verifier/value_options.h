// What the verifier knows of a rank before it follows the values of its programs.
#ifndef WEFT_TRANSPILER_VERIFIER_VALUE_OPTIONS_H_
#define WEFT_TRANSPILER_VERIFIER_VALUE_OPTIONS_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/feed_layout.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/values/startup_values.h"
#include "transpiler/verifier/verify.h"

namespace weft {

// The number of ranks: as given, or as the programs say, or as many as there are programs, if more
// than one.
absl::optional<int> NumRanks(const VerifyOptions& options, const ConstProgramPair& programs,
                             size_t num_programs);

// What layers 3 and 6 learn of the batch, mostly from layer 7. Fields as in RankValuesOptions.
struct BatchFacts {
  FeedLayouts feeds;
  bool sums_are_wanted = false;
  std::set<std::string> sum_gradients;
  absl::flat_hash_map<OpId, int> lifts;
};

// `flow` may be null: nothing is known of the batch.
BatchFacts BatchFactsOf(const VerifyOptions& options, const Program& main, const BatchFlow* flow);

// The options of RankValues::Of the main program. They refer to `facts`, and to `start`, which
// holds what the startup program computes, unless one process runs it for all ranks.
// `group`: RankValuesOptions::group.
RankValuesOptions ValueOptions(const VerifyOptions& options, const ConstProgramPair& programs,
                               absl::optional<int> nranks, const BatchFacts& facts,
                               StartupValues* start, const std::vector<int>& group = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_VALUE_OPTIONS_H_
