#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_SCALE_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_SCALE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// The division of the loss's gradient op for op as Paddle's SingleProcessMultiThread writes it,
// after every op of role backward|loss:
//
//   Out=[loss@GRAD] = scale(X=[loss@GRAD]) {scale = 1/hosts/devices}
//
// Hosts are the different hosts of the endpoints; devices those of each trainer, 8 where they are
// not given. Where no gradient belongs to a replicated parameter, so that nothing is summed over
// hosts, the factor is 1/devices.
//
// Known defects of Paddle's (docs/paddle_dialect.md): trainers on one host count as one (18); a
// loss whose gradient has lost its role is not scaled, and only the first output of such an op is
// (6).
//
// Changes nothing where loss_scale is false. InvalidArgument without endpoints; by contract,
// FailedPrecondition where gradients are reduced already. O(arguments).
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
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_SINGLE_PROCESS_SCALE_H_
