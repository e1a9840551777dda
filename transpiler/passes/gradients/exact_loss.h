#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_EXACT_LOSS_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_EXACT_LOSS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Makes losses that are no mean and no sum over the batch those of one device, where collectives in
// the forward pass can (FindLossEdits, ops/analysis/values/batch_edits.h): a weighted mean n / d,
// whose weights have another sum on every rank,
//
//   Out=[n] = reduce_sum(X=[weighted])
//   Out=[d] = reduce_sum(X=[weights])
//   Out=[d] = c_allreduce_avg(X=[d])
//   Out=[loss] = elementwise_div(X=[n], Y=[d])
//
// a function of a mean, such as its square root, and a condition on one. Of a function of a sum s,
// such as the Dice loss 1 - (2 s + 1) / (t + 1), the gradient is summed, too:
//
//   Out=[s] = c_allreduce_sum(X=[s])
//   Out=[s@GRAD] = c_allreduce_sum(X=[s@GRAD])
//
// Losses that stay as they are get W701 from the verifier.
//
// With gather_negatives, ops that compare samples with each other, in contrastive losses, read the
// samples of all ranks; then every rank computes the loss of one device:
//
//   Out=[a@GATHERED] = c_allgather(X=[a])          likewise b and the labels
//   Out=[s] = matmul_v2(X=[a@GATHERED], Y=[b@GATHERED])
//   ...
//   X@GRAD=[a@GATHERED@GRAD], ... = matmul_v2_grad(X=[a@GATHERED], ...)
//   Out=[a@GRAD] = c_reducescatter(X=[a@GATHERED@GRAD])
//
// The collectives run on ring 0 and on the compute stream. Where a divisor is divided by a known
// number of ranks, the quotient is a mean over the batch, otherwise a sum: option scale=auto of
// later passes follows that. FailedPrecondition in the paddle dialect, if the gradient op of a
// division cannot be found, and, with gather_negatives, for samples of a declared number and
// without a number of ranks. O(arguments) for each of a few
// hundred walks at most.
class ExactLoss : public Pass {
 public:
  static constexpr absl::string_view kName = "exact-loss";
  static constexpr absl::string_view kDescription =
      "main program: reduces over the ranks what losses that are no batch means are computed from";
  struct Options {
    bool exact_loss = true;
    bool gather_negatives = false;
    void Bind(OptionBinder& bind);
  };
  explicit ExactLoss(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  void Foresee(const ConstProgramPair& programs, const PassContext& context,
               Forecast* forecast) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_EXACT_LOSS_H_
