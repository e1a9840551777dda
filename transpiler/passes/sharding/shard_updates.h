#ifndef WEFT_TRANSPILER_PASSES_SHARDING_SHARD_UPDATES_H_
#define WEFT_TRANSPILER_PASSES_SHARDING_SHARD_UPDATES_H_

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Shares the updates of parameters out (ZeRO): each rank keeps and updates a part of every bucket,
// and gathers the parameters from all ranks before a step uses them.
//
//   Output=[w, b], FusedOutput=[fused_param_0] = coalesce_tensor(...)
//   Out=[fused_param_0] = c_allgather(X=[param_share_0])        before the first use of w or b
//   ...                                                         forward and backward
//   Out=[grad_share_0] = c_reducescatter(X=[fused_gradient_0])  the gradients are complete
//   adam(Param=[param_share_0], Grad=[grad_share_0], Moment1=[moment1_share_0], ...)
//
// A loss scale that follows the gradients follows those of all ranks: each searches its shares for
// elements that are not finite, and an all-reduce of the maximum tells the others.
//
// A bucket is padded to a multiple of the number of ranks. Its parameters have chains that compute
// the same (update_chains.h); one chain on shares takes their place. Where an update needs a whole
// parameter (Lamb), a bucket has parameters of equally many elements, one for each rank: its part
// is the parameter that it owns. Other parameters are updated on all ranks, as with
// grad-all-reduce, which a note says. A variable that stands for several, such as a power of beta,
// is that of the first parameter.
//
// Of gradients that are accumulated over several steps, each rank keeps its own sums, whole. The
// reduce-scatter and the updates are in the block that uses them up.
//
// With stages 2 and 3, a bucket of gradients travels when the one before has arrived, so that no
// more than two are in memory. With stage 3, parameters are gathered once more for the backward
// pass, under other names: between the two, nobody needs them. These waits, and those before
// gathers, order no accesses of a variable: they free memory.
//
// The startup program initializes whole parameters and states as before. Rank 0 sends each rank its
// part (alltoall, of which only what rank 0 sends is kept).
//
// Sink::shares gets what shares hold. FailedPrecondition: no startup program; those of
// grad-all-reduce. InvalidArgument: the number of ranks is unknown. By contract, a program of which
// servers have parameters. O(arguments).
class ShardUpdates : public Pass {
 public:
  static constexpr absl::string_view kName = "shard-updates";
  static constexpr absl::string_view kDescription =
      "main and startup program: each rank keeps and updates a part of every bucket of parameters";
  struct Options {
    int stage = 1;     // 2: frees gradients; 3: and gathers parameters for each pass
    int prefetch = 1;  // buckets of parameters that travel at a time, on rings after the others
    int nrings = 1;    // communication rings
    GradientScale scale = GradientScale::kAuto;  // as with grad-all-reduce
    BucketPolicy buckets;                        // which gradients travel together
    void Bind(OptionBinder& bind);
  };
  explicit ShardUpdates(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  bool HasTrait(PassTrait trait) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SHARDING_SHARD_UPDATES_H_
