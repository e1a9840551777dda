#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_FUSE_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_FUSE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Sums all gradients in one collective, op for op as Paddle's SingleProcessMultiThread, after the
// last op that completes a replicated gradient. g: the replicated gradients, from the last op to
// the first; g0: the first of them. By a buffer:
//
//   FusedOutput=[fused_output], Output=[g, ...] = coalesce_tensor(Input=[g, ...]) {copy_data}
//   Out=[fused_output] = c_sync_calc_stream(X=[fused_output])
//   Out=[fused_output] = c_allreduce_sum(X=[fused_output]) {ring_id=0}
//   Out=[fused_output] = c_sync_comm_stream(X=[fused_output]) {ring_id=0}
//
// By c_allreduce_xsum, an op of a fork of Paddle (2.6.2 throws):
//
//   Out=[g0] = c_sync_calc_stream(X=[g0])
//   Out=[g, ...] = c_allreduce_xsum(X=[g, ...]) {ring_id=0}
//   Out=[g0] = c_sync_comm_stream(X=[g0]) {ring_id=0}
//
// Known defects of Paddle (docs/paddle_dialect.md): one fp32 buffer for gradients of all element
// types (14); nothing overlaps, and coalesce_tensor has role forward (16); with several optimizers,
// the first ones use gradients that are not summed yet (26).
//
// Changes nothing without replicated gradients. FailedPrecondition if the program has a variable
// fused_output; by contract, with reduced gradients. O(arguments).
class PaddleSingleProcessFuse : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-single-process-fuse";
  static constexpr absl::string_view kDescription =
      "main program: all-reduces all gradients at once exactly as Paddle's "
      "SingleProcessMultiThread";
  enum class By { kBuffer, kXsum };
  struct Options {
    By by = By::kBuffer;
    void Bind(OptionBinder& bind);
  };
  explicit PaddleSingleProcessFuse(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_FUSE_H_
