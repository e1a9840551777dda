#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_COMM_INIT_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_COMM_INIT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Appends the set-up of communication rings 0 .. nrings-1 to the startup program, as Paddle's
// classes do. Changes nothing without a startup program.
//
// Per ring, on CUDA devices:
//   Out=[nccl_id_0] = c_gen_nccl_id() {rank, endpoint, other_endpoints}
//   c_comm_init(X=[nccl_id_0]) {nranks, rank, ring_id}
// If trainers drive several devices, c_comm_init_multitrainer {ntrainers, trainer_id, ring_id}
// replaces c_comm_init. XPU (c_gen_bkcl_id, bkcl_id_0) and custom devices (c_gen_xccl_id,
// xccl_id_0) always use c_comm_init, with all `endpoints` too. A single trainer with several
// devices: c_comm_init_all() {ring_id=0}, once.
//
// Known defects of Paddle (docs/paddle_dialect.md): the ids of all rings are exchanged under
// ring_id 0, so those of two rings can be mixed up (4); a single trainer sets up only ring 0,
// whatever nrings is (20); hosts count instead of trainers (18).
//
// On the CPU, nothing is set up, and a single trainer is Unimplemented: Paddle throws, as
// c_comm_init_all has no kernel there.
//
// InvalidArgument without endpoints, or if devices are to be listed and are not given;
// FailedPrecondition if the startup program already sets up one of these rings. O(startup ops).
class PaddleCommInit : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-comm-init";
  static constexpr absl::string_view kDescription =
      "startup program: sets up the communication rings exactly as Paddle does";
  // What a ring connects.
  enum class Over {
    kRanks,     // trainers with one device each: GradAllReduce, LocalSGD
    kTrainers,  // trainers with several devices: MultiThread
    kHosts,     // like kTrainers, but those on one host count as one: SingleProcessMultiThread
  };
  struct Options {
    int nrings = 1;  // communication rings
    Over over = Over::kRanks;
    bool list_devices = false;  // in c_comm_init_all: trans_mode all_reduce_xpu
    void Bind(OptionBinder& bind);
  };
  explicit PaddleCommInit(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_COMM_INIT_H_
