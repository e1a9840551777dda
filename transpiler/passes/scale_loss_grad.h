#ifndef WEFT_TRANSPILER_PASSES_SCALE_LOSS_GRAD_H_
#define WEFT_TRANSPILER_PASSES_SCALE_LOSS_GRAD_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Divides the gradient of every loss by the number of ranks, right after the op that fills it (role
// backward|loss), so that gradients summed over the ranks are those of the mean loss:
//
//   Out=[loss@GRAD] = scale(X=[loss@GRAD]) {scale=1/nranks, nranks}
//
// The attribute nranks, in the weft dialect, tells passes and executors for how many ranks.
//
// The paddle dialect divides by the number of trainers, even where each drives several devices
// (Paddle's defect).
//
// Changes nothing where the reduction averages (scale avg) or nobody divides (scale none).
//
// FailedPrecondition (a warning in the paddle dialect) where a loss gradient is already divided,
// and where a gradient that will be reduced does not come from a scaled loss gradient, because the
// op that starts backward has lost its role: it would be too large by the number of ranks,
// silently, as Paddle's is. O(arguments).
class ScaleLossGrad : public Pass {
 public:
  static constexpr absl::string_view kName = "scale-loss-grad";
  static constexpr absl::string_view kDescription =
      "main program: divides the loss's gradient by the number of ranks";
  struct Options {
    GradientScale scale = GradientScale::kAuto;  // who divides; only loss_grad does it here
    void Bind(OptionBinder& bind);
  };
  explicit ScaleLossGrad(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SCALE_LOSS_GRAD_H_
