#ifndef WEFT_TRANSPILER_PASSES_UPDATES_GRAD_ACCUMULATE_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_GRAD_ACCUMULATE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Turns a training program into one that accumulates its gradients over k steps, and updates once.
// With {k=4,scale_sense=2},
//
//   Y@GRAD=[w@GRAD] = mul_grad(...) role=backward vars=[w, w@GRAD]
//   ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
//
// becomes
//
//   Y@GRAD=[w@GRAD] = mul_grad(...) role=backward
//   Out=[w@GRAD@ACCUMULATED] = elementwise_add(
//       X=[w@GRAD@ACCUMULATED], Y=[w@GRAD]) role=backward vars=[w, w@GRAD@ACCUMULATED]
//   (the condition: the number of the step is a multiple of 4)
//   conditional_block(...) {
//     Out=[scale_sense@RECIPROCAL] = reciprocal(X=[scale_sense])
//     Out=[w@GRAD] = elementwise_mul(X=[w@GRAD@ACCUMULATED], Y=[scale_sense@RECIPROCAL])
//     ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
//     Out=[w@GRAD@ACCUMULATED] = fill_constant() {value=0.0}
//   }
//
// and the startup program sets the accumulator and the counter of steps to 0, and scale_sense to 2.
// A host may set scale_sense before a step. The accumulated gradient is the one that op_role_var
// names from then on, so that passes that reduce gradients reduce it at the beginning of the block:
// once in k steps.
//
// The reset does not multiply by 0, as that of MindSpore's PipelineGradReducer does: an Inf would
// become NaN, and stay.
//
// All ops of role optimize or lr_sched move into the block, as they are and in their order:
// clipping, regularization, loss scaling, updates, averages of parameters, and learning rate
// schedules, which therefore count updates. A gradient of half precision is accumulated in fp32: if
// its only use is a cast to fp32, the cast stays outside and its result is accumulated.
//
// average: the accumulated gradients are divided by k, too. A warning, if that is not the gradient
// of one batch of all samples: for losses that are no means over the batch, and ops that normalize
// by statistics of the batch.
//
// exact_loss: a loss that is a sum over the batch divided by a number of the batch, such as that of
// its tokens, gets the gradient of one batch of all samples (BatchDivisor): each step multiplies
// the gradient of the loss by its divisor, and adds up the number; the accumulated gradients are
// divided by the divisor of all steps.
//
// skip_nonfinite: the ops that moved are in a block of their own, in that one, which runs if all
// accumulated gradients are finite.
//
// form=sharded: for a program that accumulates gradients itself, and resets them (gradient merge of
// Paddle). The accumulated gradients are scaled before their first use, and nothing else changes.
//
// InvalidArgument: k, form, average or exact_loss that do not fit each other; a scale_sense whose
// reciprocal is no fp32 number other than 0. FailedPrecondition, naming op and variable: no startup
// program; no gradient that an op of the update part uses; a program that accumulates already; a
// gradient that is compressed, sparse, of unknown dimensions, or held by a variable that holds
// several in turn; an op of every step that reads what the update writes before it, or overwrites
// what it reads; an update that reads a value of a single step, other than a scalar that is fed;
// skip_nonfinite with ops that check gradients already. By contract, a program with reduced
// gradients or averaged parameters. O(arguments).
class GradAccumulate : public Pass {
 public:
  static constexpr absl::string_view kName = "grad-accumulate";
  static constexpr absl::string_view kDescription =
      "both programs: accumulates gradients over k steps, and updates once";
  enum class Form { kPlain, kSharded };
  struct Options {
    int k = 1;
    absl::optional<double> scale_sense;  // none: nothing is divided
    bool average = false;
    bool exact_loss = false;  // with average
    bool skip_nonfinite = false;
    Form form = Form::kPlain;
    void Bind(OptionBinder& bind);
  };
  explicit GradAccumulate(const Options& options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_GRAD_ACCUMULATE_H_
