#ifndef WEFT_TRANSPILER_PASSES_UPDATES_PARAM_OPTIONS_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_PARAM_OPTIONS_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Writes what ParamAttrs say about the update of a parameter w (lr_ratio, weight_decay) into the
// program, in any block:
//
//   lr_ratio=0.5       Out=[w@RATE] = scale(X=[lr]) role=lr_sched|optimize {scale=0.5}
//                      ParamOut=[w] = adam(LearningRate=[w@RATE], ...)
//   weight_decay=0.1   replaces the decay that the op has itself: coeff of adamw, weight_decay of
//                      lamb, L2 regularization of momentum. Before other ops, L2 regularization is
//                      added to the gradient, on top of that which ops of the program add:
//                      Out=[w@L2] = scale(X=[w]) {scale=0.1}
//                      Out=[w@DECAYED] = sum(X=[w@GRAD, w@L2])
//                      ParamOut=[w] = adam(Grad=[w@DECAYED], ...)
//   no_decay=P         weight_decay=0 for parameters that match, that their update decays itself,
//                      and that have no weight_decay
//   adam_epsilon=mindspore  adam and adamw of all parameters add epsilon to the root of the moment
//                      without bias correction, as MindSpore's Adam, LazyAdam and AdamOffload do:
//                        p -= lr √(1 - beta2^t) / (1 - beta1^t) m / (√v + epsilon)
//                      Paddle's ops multiply epsilon by √(1 - beta2^t), so that they get
//                      EpsilonTensor=[w@EPSILON], with epsilon / √(1 - Beta2Pow)
//
// It runs first, so that the result of later passes can be compared with its own. Changed ops carry
// their options in op_namescope.
//
// InvalidArgument: options for a parameter that no optimizer updates; a pattern that matches no
// parameter that its update decays; adam_epsilon without adam or adamw. FailedPrecondition, naming
// op and parameter: an update that has options of this pass already; with adam_epsilon=mindspore,
// a beta, epsilon, decay or rate that MindSpore's optimizers refuse; one of several parameters at a
// time; a decay of lars_momentum; a decay for a gradient with rows, or of a parameter of unknown
// type. By contract, as set-optimizer. O(arguments).
class ParamOptions : public Pass {
 public:
  static constexpr absl::string_view kName = "param-options";
  static constexpr absl::string_view kDescription =
      "main program: writes lr_ratio and weight_decay of option:param_attrs into the updates";
  enum class AdamEpsilon { kPaddle, kMindSpore };
  struct Options {
    std::string no_decay;
    AdamEpsilon adam_epsilon = AdamEpsilon::kPaddle;
    void Bind(OptionBinder& bind);
  };
  // Whether the pass has written options into an update.
  static bool HasOptions(const Op& update);

  explicit ParamOptions(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  bool HasTrait(PassTrait trait) const override {
    return trait == PassTrait::kReadsUpdateOptions || trait == PassTrait::kChangesAnyProgram;
  }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_PARAM_OPTIONS_H_
