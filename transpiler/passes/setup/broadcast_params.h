#ifndef WEFT_TRANSPILER_PASSES_SETUP_BROADCAST_PARAMS_H_
#define WEFT_TRANSPILER_PASSES_SETUP_BROADCAST_PARAMS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// The option bcast_period, which this pass shares with PeriodicBroadcast: MegEngine's meaning.
void BindBroadcastPeriod(OptionBinder& bind, int* period);

// Appends to the startup program a broadcast of every replicated parameter from rank 0, so that all
// ranks start with equal parameters:
//
//   Out=[w, ...] = c_wait_compute(X=[w, ...]) {ring_id}   per ring: after the initializers
//   Out=[w] = c_broadcast(X=[w]) {ring_id, root=0}        per parameter
//   Out=[w, ...] = c_wait_comm(X=[w, ...]) {ring_id}      per ring: before later ops
//
// So do other states that ranks draw for themselves, and copies of what they draw: weights that are
// not marked as parameters, master weights, target networks.
//
// Takes the parameters in the order of startup_parameters.h; they take rings 0 .. nrings-1 in turn.
// Those of a group of ranks (ParamAttrs::group) take its ring (comm_init.h) and start from the
// values of its first rank. States of optimizers go with their parameter. Parameters that share
// memory (weights of `rnn` in a fused buffer) take the same ring, whose stream orders their
// broadcasts. Changes nothing without a startup program or parameters.
//
// The paddle dialect writes no c_wait_compute. Instead of c_wait_comm, it writes one
// c_sync_comm_stream per ring, which names only the last parameter, even a distributed one. It
// ignores shared memory, and broadcasts parameters only.
//
// With bcast_period -1, changes nothing: ranks begin with what each initializes.
//
// InvalidArgument if the startup program does not declare a parameter of the main program;
// FailedPrecondition if parameters of different groups share memory. O(ops).
class BroadcastParams : public Pass {
 public:
  static constexpr absl::string_view kName = "broadcast-params";
  static constexpr absl::string_view kDescription =
      "startup program: broadcasts the parameters from rank 0";
  struct Options {
    int nrings = 1;        // communication rings
    int bcast_period = 0;  // -1: no broadcast; else as 0
    void Bind(OptionBinder& bind);
  };
  explicit BroadcastParams(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SETUP_BROADCAST_PARAMS_H_
