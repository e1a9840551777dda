#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_SCALE_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_SCALE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Divides the gradient of every loss op for op as Paddle's SingleProcessMultiThread, after each op
// of role backward|loss:
//
//   Out=[loss@GRAD] = scale(X=[loss@GRAD]) {scale = 1/hosts/devices}
//
// hosts: the number of distinct hosts of the endpoints, or 1 without replicated gradients, when
// nothing is summed over hosts. devices: per trainer, by default 8.
//
// Known defects of Paddle (docs/paddle_dialect.md): trainers on one host count as one (18); a loss
// whose gradient has lost its role is not scaled, and only the first output of an op is (6).
//
// Changes nothing if loss_scale is false. InvalidArgument without endpoints; by contract,
// FailedPrecondition with reduced gradients. O(arguments).
class PaddleSingleProcessScale : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-single-process-scale";
  static constexpr absl::string_view kDescription =
      "main program: divides the loss's gradient exactly as Paddle's SingleProcessMultiThread";
  struct Options {
    bool loss_scale = true;  // whether to divide
    void Bind(OptionBinder& bind);
  };
  explicit PaddleSingleProcessScale(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_SCALE_H_
