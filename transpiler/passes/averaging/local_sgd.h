#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_LOCAL_SGD_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_LOCAL_SGD_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/averaging/averaging_plan.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Averages parameters over the ranks every k steps, after the updates of the step; in between,
// ranks train separately. With k = 1, at the end of the main program, per element type:
//
//   Output=[w, b], FusedOutput=[local_sgd_buffer_0] = coalesce_tensor(Input=[w, b]) {copy_data}
//   c_wait_compute(X=[w, b, local_sgd_buffer_0]) {ring_id}
//   c_allreduce_avg(X=[local_sgd_buffer_0]) {ring_id}
//   c_wait_comm(X=[w, b, local_sgd_buffer_0]) {ring_id}
//
// If the number of ranks is known, c_allreduce_sum and a scale by 1/nranks replace c_allreduce_avg.
// With k > 1, or a first average after step 1, these ops are in a conditional block that runs if
//   (step % k == 0 or step < begin_step) and step >= first_average
// The startup program sets the persistable counter local_sgd_step to 0, and every step increments
// it. Steps count from 1.
//
// With groups of ranks, there is a block for averages over these, and then one for averages over
// all ranks. In the first one, each group has its ring:
//
//   c_wait_compute(X=[w]) {ring_id}
//   c_allreduce_avg(X=[w]) {ring_id, group_ranks}
//   c_wait_comm(X=[w]) {ring_id}
//
// With an outer optimizer, the outer gradients (OuterOptimizer) of parameters travel instead of the
// parameters, and the mean moves what the parameters were after the last synchronization, a state
// NAME_outer_param that begins with the parameter. For sgd:
//
//   Out=[w] = elementwise_sub(X=[w_outer_param], Y=[w])
//   ... as above: the mean of w over the ranks
//   Out=[w] = scale(X=[w]) {lr}
//   Out=[w_outer_param] = elementwise_sub(X=[w_outer_param], Y=[w])
//   Out=[w] = assign(X=[w_outer_param])
//
// nesterov and slowmo have NAME_outer_velocity, too; for nesterov it holds momentum times v.
//
// With fragments, each has a block of its own, which runs in the steps of the schedule. With a
// delay, it is followed by another one, which runs so many steps before it. That one begins to
// average the outer gradients, in states NAME_outer_gradient, and the other one waits for them:
//
//   c_wait_comm(X=[w_outer_gradient]) {ring_id}
//   Out=[w_outer_gradient] = elementwise_sub(X=[w_outer_param], Y=[w])
//   Out=[w_outer_gradient] = scale(X=[w_outer_gradient]) {1/nranks}
//   c_wait_compute(X=[w_outer_gradient]) {ring_id}
//   c_allreduce_sum(X=[w_outer_gradient]) {ring_id}
//
// With comm_dtype, they are divided by the number of ranks first, and rounded. What that takes from
// them is a state NAME_outer_error of each rank, which is added to the next ones:
//
//   Out=[w] = elementwise_add(X=[w], Y=[w_outer_error])
//   Out=[outer_gradient_0] = cast(X=[w])                       this travels
//   Out=[w_outer_error] = cast(X=[outer_gradient_0])
//   Out=[w_outer_error] = elementwise_sub(X=[w], Y=[w_outer_error])
//
// Averages all replicated floating-point parameters that an op of any block updates: an optimizer,
// or another op (target networks, mean teachers). If an optimizer keeps master weights
// (MasterParam), averages these and casts the parameter from them. Options add running statistics
// and optimizer states.
//
// FailedPrecondition: no op updates a parameter; compressed gradients; a counter or a reset without
// a startup program; a state to reset that is not the only output of one startup op without inputs;
// what PlanAveraging says of outer optimizers. By contract, a program with reduced gradients or
// averaged parameters. O(arguments).
class LocalSgd : public Pass {
 public:
  static constexpr absl::string_view kName = "local-sgd";
  static constexpr absl::string_view kDescription =
      "main program: averages parameters over the ranks every k steps";

  struct Options {
    // Options k_steps, group_size, rounds, begin_step, first_average, outer, fragments, delay, mix
    // and comm_dtype.
    AveragingSchedule schedule;
    int nrings = 1;           // communication rings
    bool statistics = false;  // average running statistics too
    OptimizerState state = OptimizerState::kLocal;
    void Bind(OptionBinder& bind);
  };
  explicit LocalSgd(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_LOCAL_SGD_H_
