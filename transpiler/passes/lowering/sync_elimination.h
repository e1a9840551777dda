#ifndef WEFT_TRANSPILER_PASSES_LOWERING_SYNC_ELIMINATION_H_
#define WEFT_TRANSPILER_PASSES_LOWERING_SYNC_ELIMINATION_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Removes redundant stream synchronizations from all blocks of both programs:
//   - an earlier wait covers the same work, or no work was issued;
//   - no later access relies on it: the program orders the same accesses without it;
//   - the ring has no stream: it has no collectives, or they run on the compute stream.
// The removals are redundant together: two ordered accesses to the same storage stay ordered
// (ops/analysis/streams/streams.h). The end of a program counts as an access of the compute stream
// to all storage, because the rings may not be drained between steps. Host waits at a ring set-up
// or a condition make no other wait redundant.
//
//   Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
//   Out=[g] = c_wait_comm(X=[g]) {ring_id=0}     removed: no op uses g before the next wait
//   Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0}
//   Out=[h] = c_wait_comm(X=[h]) {ring_id=0}     kept: later ops use g and h
//   Out=[h] = c_wait_comm(X=[h]) {ring_id=0}     removed: orders nothing new
//   ParamOut=[w] = sgd(Grad=[g], ...)
//
// Changes nothing in a program with data races, whose accesses do not show what it relies on, or
// with an unregistered op that names a ring, which may use the ring's stream. With more than 64
// rings, removes only waits that order nothing. O(arguments + waits * rings).
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
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_LOWERING_SYNC_ELIMINATION_H_
