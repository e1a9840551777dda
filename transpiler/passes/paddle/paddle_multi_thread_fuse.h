#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_MULTI_THREAD_FUSE_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_MULTI_THREAD_FUSE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// All-reduces gradients through fused buffers, op for op as Paddle's MultiThread with trans_mode
// fuse_all_reduce. Cuts the replicated gradients, from the last op to the first, into segments of
// at most fuse_grad_size_in_num of one element type. Before the first optimize op:
//
//   FusedOutput=[b], Output=[g, ...] = coalesce_tensor(Input=[g, ...]) {copy_data, dtype}
// for each segment, the last one first, with b = FusedOutput_<first gradient>_<number>; then
//   Out=[b] = c_sync_calc_stream(X=[b])
//   Out=[b] = c_allreduce_sum(X=[b]) {ring_id=0}
// for each, the last one first; then
//   Out=[b] = c_sync_comm_stream(X=[b]) {ring_id=0}
// for the first segment.
//
// Known defects of Paddle (docs/paddle_dialect.md): all communication is on ring 0 and overlaps
// with nothing (19); gradients of a second optimizer's loss are summed before they are computed
// (26); without an optimize op in the root block, as with gradient merge, nothing is reduced (25).
//
// FailedPrecondition without gradients; by contract, with reduced gradients. InvalidArgument if a
// gradient is no tensor. O(arguments).
class PaddleMultiThreadFuse : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-multi-thread-fuse";
  static constexpr absl::string_view kDescription =
      "main program: all-reduces fused gradients exactly as Paddle's MultiThread";
  struct Options {
    int fuse_grad_size_in_num = 128;
    void Bind(OptionBinder& bind);
  };
  explicit PaddleMultiThreadFuse(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_MULTI_THREAD_FUSE_H_
