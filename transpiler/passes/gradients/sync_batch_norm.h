#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_SYNC_BATCH_NORM_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_SYNC_BATCH_NORM_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Has batch_norm normalize by the mean and the variance of the batches of all ranks, as one device
// does:
//
//   -Y=[y], ... = batch_norm(X=[x], ...)
//   +Y=[y], ... = sync_batch_norm(X=[x], ...)
//
// and likewise its gradient op, in all blocks. For each of them, ranks gather 2 C + 1 numbers of
// fp64 from each other, C being the number of channels. Ops that normalize by running statistics
// stay as they are.
//
// Paddle has kernels of sync_batch_norm for GPUs only. Unimplemented for groups of ranks. O(ops).
class SyncBatchNorm : public Pass {
 public:
  static constexpr absl::string_view kName = "sync-batch-norm";
  static constexpr absl::string_view kDescription =
      "main program: batch_norm normalizes by the statistics of all ranks' batches";
  struct Options {
    bool sync_batch_norm = true;
    void Bind(OptionBinder& bind);
  };
  explicit SyncBatchNorm(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_SYNC_BATCH_NORM_H_
