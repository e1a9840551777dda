#ifndef WEFT_TRANSPILER_PASSES_SYNC_ELIMINATION_H_
#define WEFT_TRANSPILER_PASSES_SYNC_ELIMINATION_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Removes from both programs, in all blocks, the waits and synchronizations of streams that nobody
// needs:
//   - what they wait for was waited for already, or nothing was issued;
//   - no later access relies on them: all that they order is ordered without them, too;
//   - the ring has no stream: its collectives run on the compute stream, or it has none.
// All that were removed are not needed together; what was ordered between two accesses to the same
// storage stays ordered (ops/analysis/streams.h says how that is found out). The end of a program
// counts as an access to everything by the compute stream, as what follows may not drain the rings;
// and that the host waits where it sets a ring up, or reads a condition, makes no wait needless.
//
//   Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
//   Out=[g] = c_wait_comm(X=[g]) {ring_id=0}     goes: nothing uses g before the next wait
//   Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0}
//   Out=[h] = c_wait_comm(X=[h]) {ring_id=0}     stays: g and h are used behind it
//   Out=[h] = c_wait_comm(X=[h]) {ring_id=0}     goes: brings nothing new
//   ParamOut=[w] = sgd(Grad=[g], ...)
//
// Nothing is removed from a program that has data races: what clashes already does not tell what it
// relies on. Nor from one with an op that is not known and names a ring, which may use the ring's
// stream. With more than 64 rings, only waits that order nothing are removed. What a
// program already had is treated as what other passes wrote. O(arguments + waits * rings).
class SyncElimination : public Pass {
 public:
  static constexpr absl::string_view kName = "sync-elimination";
  static constexpr absl::string_view kDescription =
      "both programs: removes waits between streams that order nothing";
  struct Options {
    void Bind(OptionBinder& bind);
  };
  explicit SyncElimination(Options options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SYNC_ELIMINATION_H_
