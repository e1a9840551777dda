#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_GATHER_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_GATHER_GRADIENTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Gathers the gradients of all ranks on every rank, which averages them in rank order:
//
//   Y@GRAD=[w@GRAD] = mul_grad(...)                                     completes w@GRAD
//   Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) {ring_id}
//   Out=[w@GRAD@GATHERED] = c_allgather(X=[w@GRAD]) {nranks, ring_id}
//   ...
//   c_wait_comm(X=[w@GRAD, w@GRAD@GATHERED]) {ring_id}
//   Out=[gathered_part_0, gathered_part_1] = split(X=[w@GRAD@GATHERED]) {num=nranks, axis=0}
//   Out=[w@GRAD] = sum(X=[gathered_part_0, gathered_part_1])
//   Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=1/nranks}                   unless divided before
//   sgd(Grad=[w@GRAD], ...)                                             first use
//
// The gradient variable holds the average before any op uses it. Clipping, regularization and
// optimizers keep their meaning and run once. Positions, rings and waits are those of
// grad-all-reduce: a gradient that is accumulated over several steps (gradient merge) is gathered
// in the conditional block that uses it, once per update.
//
// Gradients of one type and block share one part variable per rank. Row-sparse gradients use
// all-reduce, which gathers their rows.
//
// InvalidArgument if the number of ranks is unknown or above 1024. FailedPrecondition as
// grad-all-reduce. O(arguments + gradients * nranks).
class GatherGradients : public Pass {
 public:
  static constexpr absl::string_view kName = "gather-gradients";
  static constexpr absl::string_view kDescription =
      "main program: gathers the gradients of all ranks, and averages them on every rank";
  struct Options {
    int nrings = 1;                              // communication rings
    GradientScale scale = GradientScale::kAuto;  // avg: every rank divides the sum
    void Bind(OptionBinder& bind);
  };
  explicit GatherGradients(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_GATHER_GRADIENTS_H_
