// Layer 5: do blocks with collectives run on all ranks or on none?
#ifndef WEFT_TRANSPILER_VERIFY_BRANCH_CONDITIONS_H_
#define WEFT_TRANSPILER_VERIFY_BRANCH_CONDITIONS_H_

#include <vector>

#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "transpiler/verify/blocks_with_collectives.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Checks the conditions of a program that all ranks run (W503, W504). Observes RankValues::Of
// walking the program.
class ConditionChecker : public RankObserver {
 public:
  // `program` must outlive the checker. O(ops).
  ConditionChecker(const Program& program, ProgramRef ref);

  void Restart() override { found_.clear(); }
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override;
  void OnOpaqueBlock(const Op& op) override;

  void Check(Findings* findings) const;

 private:
  // An op that runs a block with collectives: on a condition, or, where that is invalid, in a loop.
  struct Found {
    OpId op;
    Symbol condition;
    RankValue::Placement placement;
  };

  const Program& program_;
  const ProgramRef ref_;
  const BlocksWithCollectives blocks_;
  std::vector<Found> found_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_BRANCH_CONDITIONS_H_
