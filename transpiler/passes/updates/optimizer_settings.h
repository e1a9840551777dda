// What an optimizer is set to: its type and hyperparameters, from text.
#ifndef WEFT_TRANSPILER_PASSES_UPDATES_OPTIMIZER_SETTINGS_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_OPTIMIZER_SETTINGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "base/option_binder.h"
#include "transpiler/passes/updates/schedule_value.h"

namespace weft {

enum class OptimizerType { kSgd, kRmsProp, kAdaGrad, kAdam, kAdamW };

// All hyperparameters have values. Those that the type does not read are at their defaults.
struct OptimizerSettings {
  OptimizerType type = OptimizerType::kSgd;
  ScheduleValue lr{0.1};
  ScheduleValue weight_decay{0};
  // SGD
  ScheduleValue momentum{0}, dampening{0};
  bool nesterov = false;
  // RMSProp
  ScheduleValue rho{0.9};
  // RMSProp, AdaGrad, Adam, AdamW
  ScheduleValue epsilon{1e-8};
  // Adam, AdamW
  ScheduleValue beta_1{0.9}, beta_2{0.999};
};

// "{type=sgd,lr=0.1,...}": the type and all hyperparameters that it reads. Equal settings give
// equal text.
std::string ToString(const OptimizerSettings& settings);

// The options by which text sets an optimizer. Names, defaults and ranges are those of Apache SINGA
// (python/singa/opt.py), but for what is wrong or unchecked there: every hyperparameter may decay,
// also epsilon of RMSProp, and values that make no sense in some step are refused (negative rates,
// epsilons, or momentum; rho outside [0, 1]; a beta outside [0, 1)). SINGA has no AdamW: its
// weight_decay is 0.01 by default, as in Paddle and MegEngine, and does not decay.
struct OptimizerOptions {
  OptimizerType type = OptimizerType::kSgd;
  // None: the default.
  absl::optional<ScheduleValue> lr, weight_decay, momentum, dampening, rho, epsilon, beta_1, beta_2;
  absl::optional<bool> nesterov;

  void Bind(OptionBinder& bind);
  // InvalidArgument: an option that the type does not read; nesterov without momentum, or with
  // dampening; a weight_decay of AdamW that decays.
  absl::StatusOr<OptimizerSettings> Resolve() const;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_OPTIMIZER_SETTINGS_H_
