#ifndef WEFT_TRANSPILER_PASSES_DEVICES_OPTIMIZER_OFFLOAD_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_OPTIMIZER_OFFLOAD_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/option_binder.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Puts optimizers on the host: sets op_device of the update ops of the root block whose parameters
// match `offload_params`, of branches that hold updates, and of the ops of learning-rate schedules.
// Pass hetero-partition, which must follow, makes the copies: state and master weights stay in the
// memory of the host, gradients go there while backward runs, and parameters come back.
//
//   master_weights=fp32   the host updates master weights of parameters in half precision, and
//                         sends what half precision leaves of them. An update without MasterParam
//                         gets one, and fp32 state (OffloadMasters)
//   master_weights=none   a MasterParam is dropped: the parameter itself is updated, in fp32, and
//                         rounded, so that updates below half its precision are lost
//   offload=states        the parameter stays on the accelerator, with its master weight, and what
//                         it changes by returns, for sgd, momentum, adam, adamw and lamb
//                         (OffloadDelta)
//   bias_correction=false adam and adamw take powers of beta of 0, and are then MindSpore's
//                         AdamWeightDecay: p -= lr (m / (√v + epsilon) + weight_decay p)
//   gradient_copy=fp16    dense fp32 gradients are cast on the accelerator, copied with 2 bytes an
//                         element, and cast back on the host; or bf16
//
// Updates whose op_device is cpu count as offloaded, whether they match or not; those that match
// get master weights or lose them. Updates of branches go to the host as they are, or as
// offload=states makes them, and with them the ops that merge gradients for the branch
// (accumulations.h).
//
// InvalidArgument: no update matches. FailedPrecondition, naming op and variable: those of
// OffloadMasters and OffloadDelta; an update in a branch that an option would change; one with
// op_device=cpu that offload=states, bias_correction=false or gradient_copy would change; updates
// of several parameters in one op of which only some match. O(arguments).
class OptimizerOffload : public Pass {
 public:
  static constexpr absl::string_view kName = "optimizer-offload";
  static constexpr absl::string_view kDescription =
      "both programs: puts optimizers and their state on the host, before hetero-partition";
  enum class MasterWeights { kFp32, kNone };
  enum class Offload { kFull, kStates };
  struct Options {
    MasterWeights master_weights = MasterWeights::kFp32;
    Offload offload = Offload::kFull;
    std::string params = "*";
    bool bias_correction = true;
    absl::optional<DType> gradient_copy = {};  // none: that of the gradient
    void Bind(OptionBinder& bind);
  };
  explicit OptimizerOffload(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  bool HasTrait(PassTrait trait) const override { return trait == PassTrait::kChangesAnyProgram; }
  void Foresee(const ConstProgramPair& programs, const PassContext& context,
               Forecast* forecast) const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_OPTIMIZER_OFFLOAD_H_
