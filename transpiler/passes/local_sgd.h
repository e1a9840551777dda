#ifndef WEFT_TRANSPILER_PASSES_LOCAL_SGD_H_
#define WEFT_TRANSPILER_PASSES_LOCAL_SGD_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/averaging_plan.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Every rank trains by itself; every k steps, parameters are averaged over the ranks, after the
// updates of the step. With k = 1, at the end of the main program, per element type:
//
//   Output=[w, b], FusedOutput=[local_sgd_buffer_0] = coalesce_tensor(Input=[w, b]) {copy_data}
//   c_wait_compute(X=[w, b, local_sgd_buffer_0]) {ring_id}
//   c_allreduce_avg(X=[local_sgd_buffer_0]) {ring_id}
//   c_wait_comm(X=[w, b, local_sgd_buffer_0]) {ring_id}
//
// (Where the number of ranks is known: c_allreduce_sum, then scale by 1/nranks.) With k > 1, or a
// first step later than k, this stands in a conditional block that runs where
//   step % k == 0 and step >= begin_step
// of a persistable counter, local_sgd_step, which every step increments; the startup program sets
// it to 0. Steps count from 1.
//
// Averaged are all replicated floating-point parameters that an op of any block updates: an
// optimizer, or another op (target networks, mean teachers). Where an optimizer keeps a parameter
// in higher precision (MasterParam), that is averaged, and the parameter becomes its cast. By
// options, running statistics of normalization, and the state of optimizers (moments, powers of
// beta).
//
// FailedPrecondition: no op updates a parameter; compressed gradients; a counter or a reset
// without a startup program; a state to reset that is not made by one op without inputs there. By
// contract, a program whose gradients are reduced or whose parameters are already averaged.
// O(arguments).
class LocalSgd : public Pass {
 public:
  static constexpr absl::string_view kName = "local-sgd";
  static constexpr absl::string_view kDescription =
      "main program: averages parameters over the ranks every k steps";

  using State = OptimizerState;

  struct Options {
    AveragingSchedule schedule;   // options k_steps and begin_step
    int nrings = 1;               // communication rings
    bool statistics = false;      // average running statistics too
    State state = State::kLocal;  // of optimizers
    void Bind(OptionBinder& bind);
  };
  explicit LocalSgd(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_LOCAL_SGD_H_
