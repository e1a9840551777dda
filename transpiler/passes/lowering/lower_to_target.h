#ifndef WEFT_TRANSPILER_PASSES_LOWERING_LOWER_TO_TARGET_H_
#define WEFT_TRANSPILER_PASSES_LOWERING_LOWER_TO_TARGET_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Replaces communication ops of all blocks by those that the target has (PassContext::target).
// Other passes write the ops of Paddle 2 for CUDA devices.
//
// Paddle 3:
//   Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}   out=[g] = all_reduce(x=[g]) {reduce_type=0,
//   ring_id=0} Out=[w] = c_broadcast(X=[w]) {root=0}          out=[w] = broadcast(x=[w]) {root=0}
//   c_comm_init_all() {ring_id=0}                  comm_init_all() {ring_id=0}
//
// In the paddle dialect, new ops also get the slots and attributes that Paddle 3 added to ops of
// their type: empty, and with their defaults.
//
// CPU, in the weft dialect: there is one stream. Ops that order streams are removed, and
// collectives set use_calc_stream. The communicator has no means: a mean becomes a sum and a
// division by the number of ranks.
//
// In the weft dialect, ops on fused buffers get an order that Paddle's executor sees
// (transpiler/passes/lowering/executor_order.h).
//
// Unimplemented, naming the op, for one that the target does not have: a sum of several variables
// in Paddle 3; on the CPU, a mean over an unknown number of ranks, and a collective on row-sparse
// gradients or half precision, for which Paddle computes nonsense without an error. O(ops), plus
// the size of the ops that change.
class LowerToTarget : public Pass {
 public:
  static constexpr absl::string_view kName = "lower-to-target";
  static constexpr absl::string_view kDescription =
      "both programs: communication ops that the target version of Paddle has for the device";
  struct Options {
    void Bind(OptionBinder& bind) {}
  };
  explicit LowerToTarget(Options options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_LOWERING_LOWER_TO_TARGET_H_
