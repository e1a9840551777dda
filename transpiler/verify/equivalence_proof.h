// Layer 6 in a fraction of the time, for programs that are mostly the original.
#ifndef WEFT_TRANSPILER_VERIFY_EQUIVALENCE_PROOF_H_
#define WEFT_TRANSPILER_VERIFY_EQUIVALENCE_PROOF_H_

#include <vector>

#include "absl/types/optional.h"
#include "ops/analysis/rank_values.h"
#include "proto/program_pair.h"
#include "transpiler/verify/equivalence.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/local_schedule.h"
#include "transpiler/verify/unchanged_prefix.h"

namespace weft {

// Proves equivalence from the walk over the rewritten program that other layers need anyway, and
// from expressions of the ops after the part that the rewrite left alone (UnchangedPrefix). Where
// it fails, CheckEquivalence says whether the programs differ.
class EquivalenceProof {
 public:
  // Programs must outlive the proof. O(ops).
  EquivalenceProof(const ConstProgramPair& original, const ConstProgramPair& rewritten,
                   const RankValuesOptions& options,
                   const absl::optional<AveragingSchedule>& averaging);

  // The walk, RankValues::Of(rewritten), needs these options besides, and has to tell these
  // observers.
  void AttachTo(RankValuesOptions* options);
  std::vector<RankObserver*> observers() { return {&prefix_, checker_.observer()}; }

  // Whether the programs are equivalent: if so, CheckEquivalence finds nothing. To be called once,
  // after the walk. O(persistable variables + arguments after the unchanged prefix).
  bool Prove(const RankValues& after);

 private:
  const RankValuesOptions options_;
  UnchangedPrefix prefix_;
  Findings findings_;
  EquivalenceChecker checker_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_EQUIVALENCE_PROOF_H_
