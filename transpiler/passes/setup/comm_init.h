#ifndef WEFT_TRANSPILER_PASSES_SETUP_COMM_INIT_H_
#define WEFT_TRANSPILER_PASSES_SETUP_COMM_INIT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Appends the set-up of communication rings 0 .. nrings-1 to the startup program. Changes nothing
// without one.
//
// With endpoints, per ring:
//   Out=[nccl_id_0] = c_gen_nccl_id() {rank, endpoint, other_endpoints, ring_id}
//   c_comm_init(X=[nccl_id_0]) {nranks, rank, ring_id}
// Without endpoints, per ring, for all ranks of the run (nranks only if it is known):
//   c_comm_init_all() {nranks, ring_id}
// If trainers drive several devices, c_comm_init_multitrainer {devices, nranks, ntrainers, ring_id,
// trainer_id} replaces c_comm_init. A single trainer needs no endpoints:
//   c_comm_init_all() {devices, nranks, ring_id}
//
// Groups of ranks (ParamAttrs::group) get the rings that follow, in the order of their names:
//   c_comm_init_all() {nranks, ring_id, group_ranks}
// With endpoints, only the groups of the program's rank do: c_gen_nccl_id and c_comm_init name the
// endpoints, the number and the position of the ranks in the group.
//
// With group_size, groups of so many ranks get them.
//
// The last rings, over all ranks, are for parameters that travel ahead (shard-updates).
//
// paddle-comm-init is the pass of the paddle dialect.
//
// InvalidArgument: those of EqualGroups. FailedPrecondition if the startup program already sets up
// one of these rings; InvalidArgument for more than kMaxRings. O(startup ops).
class CommInit : public Pass {
 public:
  static constexpr absl::string_view kName = "comm-init";
  static constexpr absl::string_view kDescription =
      "startup program: sets up the communication rings";
  struct Options {
    int nrings = 1;      // communication rings
    int prefetch = 0;    // rings besides: buckets of parameters that travel at a time
    int group_size = 0;  // local-sgd's
    void Bind(OptionBinder& bind);
  };
  explicit CommInit(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SETUP_COMM_INIT_H_
