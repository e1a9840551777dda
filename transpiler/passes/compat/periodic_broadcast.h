#ifndef WEFT_TRANSPILER_PASSES_COMPAT_PERIODIC_BROADCAST_H_
#define WEFT_TRANSPILER_PASSES_COMPAT_PERIODIC_BROADCAST_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// MegEngine's bcast_period N: in steps N, 2N, ..., counted from 1, broadcasts the parameters from
// rank 0, after the gradients and before the first op of role optimize; with several optimizers,
// which MegEngine does not have in a step, before the last of them. Parameters of which ranks
// reduce the gradients are equal anyway: this undoes drift that has other causes. In the main
// program, in a conditional block that runs if periodic_broadcast_step % N == 0:
//
//   Out=[w, b] = c_wait_compute(X=[w, b]) {ring_id}   per ring
//   Out=[w] = c_broadcast(X=[w]) {ring_id, root=0}    per parameter
//   Out=[w, b] = c_wait_comm(X=[w, b]) {ring_id}      per ring
//
// Parameters of a group of ranks (ParamAttrs::group) take its ring (comm_init.h): its ranks go on
// from the values of its first rank, others keep theirs.
//
// With N = 1, these ops are in the root block, without a counter. Broadcasts what PlanAveraging
// finds: master weights, from which the parameter is then cast, instead of their parameters, and no
// state. With N = 0 or -1, changes nothing: broadcast-params reads the same option.
//
// FailedPrecondition: no op updates a replicated parameter; N > 1 without a startup program. By
// contract, a program without reduced gradients. O(arguments).
class PeriodicBroadcast : public Pass {
 public:
  static constexpr absl::string_view kName = "periodic-broadcast";
  static constexpr absl::string_view kDescription =
      "main program: broadcasts the parameters from rank 0 every bcast_period steps";

  struct Options {
    int bcast_period = 0;
    int nrings = 1;  // communication rings; parameters take them in turn
    void Bind(OptionBinder& bind);
  };
  explicit PeriodicBroadcast(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_COMPAT_PERIODIC_BROADCAST_H_
