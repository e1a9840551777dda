// Layer 6: does the rewritten program compute what the original computes?
#ifndef WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_
#define WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_

#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/local_schedule.h"
#include "transpiler/verify/rules.h"

namespace weft {

absl::Span<const Rule> EquivalenceRules();

struct ProgramsToCompare {
  const Program* main = nullptr;
  const Program* startup = nullptr;  // may be null
};

// Compares what a step makes of every persistable variable, as an expression over what the step is
// given: of `original` on one device that gets the batches of all ranks, and of `program` on all
// ranks (`options`: as for RankValues::Of; table and observer are not looked at). Equal up to
// re-association of sums, where gradients are means over ranks; under LocalSGD, up to averaging
// over the ranks, always or on a condition. When that holds is computed from the startup program
// on, and compared with `averaging`, or, without, with a schedule at all: parameters are averaged
// in some steps, again and again, and in others not. Running statistics and other states may be own
// to each rank, parameters may not. What the startup programs make is compared where both are
// there. O(arguments of both programs).
void CheckEquivalence(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
                      const RankValuesOptions& options,
                      const absl::optional<AveragingSchedule>& averaging, ProgramRef ref,
                      Findings* findings);

// The same, for programs that are mostly the original, in a fraction of the time: from the walk
// over the rewritten program that other layers need too, and from the ops behind the part that was
// left alone (KeptPrefix). Where it does not succeed, CheckEquivalence says whether the programs
// differ.
class EquivalenceProof {
 public:
  // `original` and `rewritten` must outlive the proof. O(ops).
  EquivalenceProof(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
                   const RankValuesOptions& options,
                   const absl::optional<AveragingSchedule>& averaging);
  ~EquivalenceProof();

  // The walk, RankValues::Of(rewritten), needs these besides, and has to tell these observers.
  void Join(RankValuesOptions* options);
  std::vector<RankObserver*> observers();

  // True: CheckEquivalence would find nothing. To be called once. O(persistable variables +
  // arguments behind the part that was left alone).
  bool Succeeds(const RankValues& after);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_
