// Layer 5: do all ranks run the same blocks with collectives?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_BLOCK_CONDITIONS_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_BLOCK_CONDITIONS_H_

#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/feed_layout.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Blocks that contain collectives or other ops that communicate, directly or in sub-blocks.
class BlocksWithCollectives {
 public:
  // O(ops).
  explicit BlocksWithCollectives(const ProgramFacts& facts);

  bool Has(int block) const { return has_[block]; }
  // Any block but the root.
  bool AnyInner() const;
  // Whether the op runs one of them.
  bool RunBy(const Op& op) const;

 private:
  std::vector<bool> has_;  // by block
};

// Checks the conditions of one program that all ranks run (W503, W504). `values`: of the program.
// O(ops).
void CheckConditions(const ProgramFacts& facts, const RankValues& values, ProgramRef ref,
                     Findings* findings);

// Checks that the programs of all ranks, which call the same collectives, compute the conditions of
// their blocks with collectives equally in every step, from variables that begin equal (W506).
// `startups` may be empty: variables then begin equal. `feeds`: FeedLayoutsOf. O(arguments of all
// programs) if there are such blocks, else O(ops).
void CheckConditionsAreEqual(absl::Span<const Program* const> programs,
                             absl::Span<const Program* const> startups, const FeedLayouts& feeds,
                             absl::optional<int> nranks, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_BLOCK_CONDITIONS_H_
