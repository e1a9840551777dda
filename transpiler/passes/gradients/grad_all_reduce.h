#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_GRAD_ALL_REDUCE_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_GRAD_ALL_REDUCE_H_

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Reduces every gradient over the ranks on the stream of its ring, while backward continues:
//
//   Y@GRAD=[w@GRAD] = mul_grad(...)                             completes w@GRAD
//   Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) {ring_id}         the ring waits for it
//   Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id}        (c_allreduce_avg with scale avg)
//   ...
//   Out=[w@GRAD, ...] = c_wait_comm(X=[w@GRAD, ...]) {ring_id}  computation waits for the ring
//   sgd(Grad=[w@GRAD], ...)                                     first use of a gradient of the ring
//
// The data flow determines where a gradient is complete and where it is first used
// (ops/analysis/training/gradients.h); positions and roles of other ops do not matter. Gradients
// take rings 0 .. nrings-1 in turn, in the order of completion. A wait covers all gradients in
// flight on its ring and names them; later uses of them need no other wait. Gradients without a use
// are waited for at the end. Clipping and regularization use gradients, so they come after the
// reduction.
//
// With buckets (transpiler/buckets/bucket_policy.h), several gradients share a buffer. One op
// reduces it when the last of them is complete:
//
//   Output=[b@GRAD, w@GRAD], FusedOutput=[fused_gradient_0] = coalesce_tensor(...)
//   ...                                                  b@GRAD and w@GRAD are written, in place
//   c_wait_compute, c_allreduce_sum(X=[fused_gradient_0]), ...
//
// Gradients that are accumulated over several steps are reduced once per update, at the beginning
// of the conditional block of the update. There, coalesce_tensor copies the gradients.
//
// Every gradient is written, reduced and waited for in the same step, so steps need no further
// synchronization between them.
//
// The all-reduce of row-sparse gradients gathers the rows of all ranks. Pass dense-gradients can
// make them dense before.
//
// FailedPrecondition: no gradients; the conditions of
// transpiler/passes/gradients/gradient_reduction.h; gradients that would be divided by the number
// of ranks twice or never. By contract, a program with reduced gradients or averaged parameters.
// O(arguments + gradients).
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
  explicit GradAllReduce(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  bool HasTrait(PassTrait trait) const override { return ReadsTimes(options_.buckets, trait); }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_GRAD_ALL_REDUCE_H_
