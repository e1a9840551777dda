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

// Checks the conditions of one program that all ranks run (W503, W504). Observes RankValues::Of
// walking the program.
class ConditionChecker : public RankObserver {
 public:
  // The program must outlive the checker. O(ops).
  ConditionChecker(const ProgramFacts& facts, ProgramRef ref)
      : program_(facts.program()), ref_(ref), blocks_(facts.Get<BlocksWithCollectives>()) {}

  void Restart() override { found_.clear(); }
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override;
  void OnOpaqueBlock(const Op& op) override;

  void Check(Findings* findings) const;

 private:
  // An op that runs a block with collectives.
  struct Found {
    OpId op;
    Symbol condition;  // invalid: a loop
    RankValue::Placement placement;
  };

  const Program& program_;
  const ProgramRef ref_;
  const BlocksWithCollectives blocks_;
  std::vector<Found> found_;
};

// Checks that the programs of all ranks, which call the same collectives, compute the conditions of
// their blocks with collectives equally in every step, from variables that begin equal (W506).
// `startups` may be empty: variables then begin equal. `feeds`: FeedLayoutsOf. O(arguments of all
// programs) if there are such blocks, else O(ops).
void CheckConditionsAreEqual(absl::Span<const Program* const> programs,
                             absl::Span<const Program* const> startups, const FeedLayouts& feeds,
                             absl::optional<int> nranks, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_BLOCK_CONDITIONS_H_
