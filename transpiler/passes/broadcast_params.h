#ifndef WEFT_TRANSPILER_PASSES_BROADCAST_PARAMS_H_
#define WEFT_TRANSPILER_PASSES_BROADCAST_PARAMS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Appends to the startup program a broadcast of every replicated parameter from rank 0, so that all
// ranks start equal. Parameters take rings 0 .. nrings-1 in turn; those that share memory (weights
// of `rnn`, laid into one buffer by coalesce_tensor) take one ring, whose stream orders their
// broadcasts. Changes nothing where there is no startup program or no parameter.
//
//   Out=[w] = c_broadcast(X=[w]) {ring_id, root=0}     for each parameter
// between, per ring,
//   Out=[w, ...] = c_wait_compute(X=[w, ...]) {ring_id}   before: the initializers are done
//   Out=[w, ...] = c_wait_comm(X=[w, ...]) {ring_id}      after: later ops see the values
// The paddle dialect writes no wait before, and one c_sync_comm_stream per ring after, which names
// the last parameter only, even a distributed one; it ignores shared memory.
//
// Parameters, and their order, are those of startup_parameters.h.
//
// InvalidArgument where the main program has a parameter that the startup program does not declare:
// the two do not belong together. O(ops).
class BroadcastParams : public Pass {
 public:
  static constexpr absl::string_view kName = "broadcast-params";
  static constexpr absl::string_view kDescription =
      "startup program: broadcasts the parameters from rank 0";
  struct Options {
    int nrings = 1;  // communication rings
    void Bind(OptionBinder& bind);
  };
  explicit BroadcastParams(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_BROADCAST_PARAMS_H_
