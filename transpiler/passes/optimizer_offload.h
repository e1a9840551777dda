#ifndef WEFT_TRANSPILER_PASSES_OPTIMIZER_OFFLOAD_H_
#define WEFT_TRANSPILER_PASSES_OPTIMIZER_OFFLOAD_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Puts optimizers on the host: sets op_device of the update ops of the root block whose parameters
// match `params`, of branches that hold updates, and of the ops of learning-rate schedules. Pass
// hetero-partition, which must follow, makes the copies: state and master weights stay in the
// memory of the host, gradients go there while backward runs, and parameters come back.
//
//   master_weights=fp32   parameters in half precision must have a MasterParam: the host updates
//   that,
//                         and sends what half precision leaves of it
//   master_weights=none   a MasterParam is dropped: the parameter itself is updated, in fp32, and
//                         rounded, so that updates below half its precision are lost
//   offload=states        the parameter stays on the accelerator. The host computes by what it
//                         changes, from a parameter of zeros, and the accelerator adds that:
//                           Out=[w@DELTA] = fill_constant() {value=0.0, op_device="cpu"}
//                           ParamOut=[w@DELTA] = adam(Param=[w@DELTA], ...) {op_device="cpu"}
//                           Out=[w] = elementwise_add(X=[w], Y=[w@DELTA])
//                         for fp32 parameters, and optimizers whose change does not depend on the
//                         parameter: sgd, momentum, adam, and adamw without decay
//   bias_correction=off   adam and adamw take powers of beta of 0, and are then MindSpore's
//                         AdamWeightDecay: p -= lr (m / (√v + epsilon) + weight_decay p)
//   no_decay=P            adamw does not decay parameters that match
//
// Updates whose op_device is cpu count as offloaded, and stay as they are.
//
// InvalidArgument: no update matches. FailedPrecondition, naming op and variable: state that is not
// fp32; half precision without master weights; no startup program where one must change; an op that
// offload=states cannot take; updates of several parameters in one op of which only some match.
// O(arguments).
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
    std::string no_decay;
    bool bias_correction = true;
    void Bind(OptionBinder& bind);
  };
  explicit OptimizerOffload(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_OPTIMIZER_OFFLOAD_H_
