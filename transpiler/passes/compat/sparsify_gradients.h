#ifndef WEFT_TRANSPILER_PASSES_COMPAT_SPARSIFY_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_COMPAT_SPARSIFY_GRADIENTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Sends the largest elements of gradients only, and adds the others to the gradients of the next
// step: the sparsified exchange of Apache SINGA (DistOpt.backward_and_sparse_update).
//
//   Y@GRAD=[w@GRAD] = mul_grad(...), Y@GRAD=[b@GRAD] = ...   complete the gradients of a bucket
//   Out=[rows], ResidualOut=[w@RESIDUAL, b@RESIDUAL] =
//       sparsify_topk(X=[w@GRAD, b@GRAD], Residual=[w@RESIDUAL, b@RESIDUAL]) {k}
//   Out=[rows] = c_wait_compute(X=[rows]) {ring_id}
//   Out=[rows] = c_allreduce_sum(X=[rows]) {ring_id}         gathers the rows of all ranks
//   ...
//   Out=[rows] = c_wait_comm(X=[rows]) {ring_id}
//   Out=[rows] = scale(X=[rows]) {scale=1/n}                 c_allreduce_avg if n is unknown
//   Out=[w@GRAD, b@GRAD] = densify(X=[rows])
//   sgd(Grad=[w@GRAD], ...)
//
// Buckets are those of SINGA: gradients above `threshold` elements travel alone, others share a
// bucket until it is above. Mode topk sends the k = ceil(spars n) largest magnitudes of the n
// elements of a bucket, product in fp32; of equal magnitudes the first ones. Mode threshold sends
// magnitudes of spars and above, but no zeros. NaNs are sent. The elements of a bucket are those of
// its gradients, in the order of completion, one after the other: no buffer holds them.
//
// Residuals are persistable variables of each rank, one for a gradient, that the startup program
// fills with zeros. So checkpoints of a rank hold them, and do not depend on buckets. Without corr,
// what is not sent is lost.
//
// Gradients travel whole
//   - with fallback, for a known number n of ranks, where rows are no fewer bytes. Of rows, a rank
//     receives 32 bytes from each other rank, and 8 for each element that it sends: k of them with
//     topk; with threshold one is assumed, as their number is known at run time only. Of dense
//     gradients it receives 2 (n - 1) / n times their bytes. Remarks say up to how many elements
//     rows are fewer bytes. A note says for how many they are not. SINGA never does this.
//   - if their variable holds several gradients in turn, or their shape is unknown
//   - as rows, if they are row-sparse already
//
// SINGA divides the sum by multiplying with the fp32 reciprocal of the number of ranks; so do the
// scale ops here. The gradient of the loss must not be divided. Gradients of losses that are sums
// are not divided.
//
// FailedPrecondition: the conditions of transpiler/passes/gradients/gradient_reduction.h; a
// gradient that is not fp32; residuals without a startup program. InvalidArgument: spars out of
// range; a threshold above half the buffer. Unimplemented: groups of ranks. By contract, a program
// with reduced gradients or averaged parameters. O(arguments + gradients).
class SparsifyGradients : public Pass {
 public:
  static constexpr absl::string_view kName = "sparsify-gradients";
  static constexpr absl::string_view kDescription =
      "both programs: exchanges the largest elements of gradients, and keeps the others for the "
      "next step";
  enum class Mode { kTopK, kThreshold };
  struct Options {
    int nrings = 1;
    Mode mode = Mode::kThreshold;
    double spars = 0.05;
    bool corr = true;
    int64_t threshold = 2097152;
    int64_t buffer_elements = 4194304;
    bool fallback = false;
    void Bind(OptionBinder& bind);
  };
  explicit SparsifyGradients(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_COMPAT_SPARSIFY_GRADIENTS_H_
