#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_POWER_SGD_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_POWER_SGD_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Sends a gradient of n rows and m columns as the product of two matrices of `rank_approximation`
// columns, n and m rows, and adds what the product lacks to the next gradient: PowerSGD (Vogels,
// Karimireddy and Jaggi 2019). From step start_step on, before the first use of the gradient g:
//
//   residual += g
//   b = columns of basis, made orthonormal    (op qr)
//   p = residual b                            the mean over the ranks
//   q = columns of p, made orthonormal
//   basis = residual^T q                      the mean over the ranks
//   sent = q basis^T
//   residual -= sent
//
// Then g = sent, which is equal on all ranks. In earlier steps, sent is the mean of g. Two blocks
// hold the ops of the two cases, so that what travels is a buffer of all p, and one of all bases;
// or, early, of all gradients. Gradients that are used before others are complete have blocks of
// their own.
//
// States: PARAM@RESIDUAL, a rank's own, begins with 0. PARAM@BASIS begins with the same random
// numbers on all ranks. power_sgd_step counts steps.
//
// Gradients travel whole, in buckets, as grad-all-reduce reduces them,
//   - if they are no fp32 tensors of two known dimensions, or the two matrices have as many
//     elements or more
//   - if their variable holds several gradients in turn, or they are accumulated over several steps
//   - if the loss is scaled: what is kept would be of another scale in the next step
//
// FailedPrecondition: the conditions of transpiler/passes/gradients/gradient_reduction.h; losses
// that are sums; no startup program for what is kept. Warns if no gradient is compressed.
// Unimplemented: groups of ranks. By contract, a program with reduced gradients or averaged
// parameters. O(arguments).
class PowerSgd : public Pass {
 public:
  static constexpr absl::string_view kName = "power-sgd";
  static constexpr absl::string_view kDescription =
      "both programs: exchanges gradients as products of thin matrices, and keeps the difference "
      "for the next step";
  struct Options {
    int nrings = 1;
    int rank_approximation = 4;
    int start_step = 10;
    BucketPolicy buckets;  // of gradients that travel whole
    void Bind(OptionBinder& bind);
  };
  explicit PowerSgd(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_POWER_SGD_H_
