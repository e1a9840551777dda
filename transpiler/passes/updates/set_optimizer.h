#ifndef WEFT_TRANSPILER_PASSES_UPDATES_SET_OPTIMIZER_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_SET_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transpiler/passes/updates/optimizer_settings.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Replaces the optimizer of a program, or gives it one. With {type=sgd,lr=0.1,momentum=0.9},
//
//   ParamOut=[w], ... = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr_0], Moment1=[...], ...)
//
// becomes
//
//   ParamOut=[w], VelocityOut=[w_velocity_0] = momentum(
//       Param=[w], Grad=[w@GRAD], LearningRate=[learning_rate_0], Velocity=[w_velocity_0]) {mu=0.9}
//
// and the startup program sets w_velocity_0 to 0 and learning_rate_0 to 0.1. The formulas, and the
// ops of each type, are those of OptimizerWriter (transpiler/passes/updates/optimizer_writer.h).
//
// A program with update ops: each is replaced where it stands, also in the block of a branch
// (gradient merge). Parameters that no op updates stay so. The new update reads the gradient that
// the old one read, so ops that clip, unscale or regularize it stay, and weight_decay comes on top
// of such a regularization; a decay that the old op itself computes (adamw) goes. What served the
// old updates alone goes, with its variables and the startup ops that initialize them: moments,
// powers of beta, learning rates, schedules and multipliers of these (FindLeftovers in
// transpiler/passes/updates/existing_updates.h). What a host writes or fetches by name only counts
// as of no use. A condition on which the old update was skipped (SkipUpdate, of mixed precision)
// stays; types other than adam and adamw cannot keep it. Schedules count a skipped update.
//
// A program without update ops: all parameters that op_role_var pairs with a gradient are updated
// after the last backward or optimize op, by the last gradient that an op of role optimize names,
// if one does (clipping), and otherwise by that of backward.
//
// All ops carry the settings in op_namescope ("/set-optimizer{type=sgd,...}"). A second run with
// the same settings changes nothing; with others, it replaces what the first one wrote. State
// begins anew.
//
// InvalidArgument: options that contradict each other (OptimizerOptions::Resolve).
// FailedPrecondition, naming op and variable: no startup program; nothing to update; updates in
// several blocks, or in that of a loop; a parameter that is not fp32 (of type sgd: nor fp16), has a
// master weight, is of unknown dimensions, or that other ops update; an accumulated
// gradient without update ops; a gradient of other dimensions than its parameter, or a compressed
// one; a skipped update that the type cannot skip. By contract, a program with reduced gradients or
// averaged parameters: passes that reduce come later. O(arguments).
class SetOptimizer : public Pass {
 public:
  static constexpr absl::string_view kName = "set-optimizer";
  static constexpr absl::string_view kDescription =
      "both programs: replaces the optimizer, or adds one";
  using Options = OptimizerOptions;
  explicit SetOptimizer(const Options& options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_SET_OPTIMIZER_H_
