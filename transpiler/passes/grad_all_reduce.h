#ifndef WEFT_TRANSPILER_PASSES_GRAD_ALL_REDUCE_H_
#define WEFT_TRANSPILER_PASSES_GRAD_ALL_REDUCE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/bucket_policy.h"
#include "transpiler/passes/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Reduces every gradient over the ranks, on its ring's stream, while backward goes on:
//
//   Y@GRAD=[w@GRAD] = mul_grad(...)                             completes w@GRAD
//   Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) {ring_id}         the ring waits for it
//   Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id}        (c_allreduce_avg with scale avg)
//   ...
//   Out=[w@GRAD, ...] = c_wait_comm(X=[w@GRAD, ...]) {ring_id}  computation waits for the ring
//   sgd(Grad=[w@GRAD], ...)                                     first use of a gradient of the ring
//
// Where a gradient is complete and where it is first used follows from the data
// (ops/analysis/gradients.h), not from positions or roles of the ops around. Gradients take rings
// 0 .. nrings-1 in turn, in the order of completion. A wait lets everything through that its ring
// was given before, so it names exactly those gradients, and later uses of them need no further
// wait. What nobody uses is waited for at the end. Clipping and regularization, which use
// gradients, thereby stand behind the reduction.
//
// With buckets (transpiler/passes/bucket_policy.h), gradients share a buffer and are reduced by one
// op, as soon as the last of them is complete:
//
//   Output=[b@GRAD, w@GRAD], FusedOutput=[fused_gradient_0] = coalesce_tensor(...)
//   ...                                                  b@GRAD and w@GRAD are written, in place
//   c_wait_compute, c_allreduce_sum(X=[fused_gradient_0]), ...
//
// Gradients that are accumulated over several steps are reduced where they are used up: at the
// beginning of the conditional block of the real update, once per update. There a bucket is
// coalesced with a copy.
//
// Every gradient is written, reduced and waited for in the same step, so steps may follow each
// other without further synchronization.
//
// The all-reduce of SelectedRows (sparse embeddings) takes the rows of all ranks; pass
// dense-gradients, before, makes dense tensors of them.
//
// FailedPrecondition: no gradients; what transpiler/passes/reduction_blockers.h lists; gradients
// that are divided by the number of ranks twice or never. By contract, a program whose gradients
// are reduced already. O(arguments + gradients).
class GradAllReduce : public Pass {
 public:
  static constexpr absl::string_view kName = "grad-all-reduce";
  static constexpr absl::string_view kDescription =
      "main program: all-reduces every gradient as soon as it is complete";
  struct Options {
    int nrings = 1;                              // communication rings
    GradientScale scale = GradientScale::kAuto;  // avg: the reduction averages, else it sums
    BucketPolicy buckets;                        // which gradients travel together
    void Bind(OptionBinder& bind);
  };
  explicit GradAllReduce(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRAD_ALL_REDUCE_H_
