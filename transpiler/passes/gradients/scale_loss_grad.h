#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_SCALE_LOSS_GRAD_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_SCALE_LOSS_GRAD_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Divides the gradient of every loss by the number of ranks, after the op that fills it (role
// backward|loss), so that the sums of gradients over the ranks are the gradients of the mean loss:
//
//   Out=[loss@GRAD] = scale(X=[loss@GRAD]) {scale=1/nranks, nranks}
//
// The weft dialect writes attribute nranks for other passes and executors. The paddle dialect
// divides by the number of trainers even if each drives several devices (Paddle's defect).
//
// Changes nothing if the reduction averages (scale avg) or gradients stay summed (scale none).
// Scale auto leaves the gradients of losses that are sums over the batch as they are.
//
// FailedPrecondition (a warning in the paddle dialect) if a loss gradient is already divided, or if
// a gradient to reduce does not come from a scaled loss gradient because the op that starts
// backward has lost its role. Such a gradient would silently be nranks times too large, as in
// Paddle. O(arguments).
class ScaleLossGrad : public Pass {
 public:
  static constexpr absl::string_view kName = "scale-loss-grad";
  static constexpr absl::string_view kDescription =
      "main program: divides the loss's gradient by the number of ranks";
  struct Options {
    GradientScale scale = GradientScale::kAuto;  // resolved to another than loss_grad: no change
    void Bind(OptionBinder& bind);
  };
  explicit ScaleLossGrad(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_SCALE_LOSS_GRAD_H_
