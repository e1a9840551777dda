#ifndef WEFT_TRANSPILER_PASSES_COMPAT_PARTIAL_AVERAGING_H_
#define WEFT_TRANSPILER_PASSES_COMPAT_PARTIAL_AVERAGING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// SINGA's partial update: each rank updates all parameters by its local gradients, and every step
// averages one partition of the parameters over the ranks, after the updates. With K partitions,
// step s, counted from 1, averages partition (s - 1) % K + 1:
//
//   partial_averaging_step = increment(partial_averaging_step)
//   per partition k: conditional_block that runs if partial_averaging_step % K == k % K
//     Output=[w, b], FusedOutput=[buffer] = coalesce_tensor(Input=[w, b]) {copy_data}
//     c_wait_compute(X=[w, b, buffer]) {ring_id}
//     c_allreduce_avg(X=[buffer]) {ring_id}
//     c_wait_comm(X=[w, b, buffer]) {ring_id}
//
// If the number of ranks is known, c_allreduce_sum and a scale by 1/nranks replace c_allreduce_avg.
// A single partition is averaged in every step, without a counter.
//
// Partitions are those of the bucket policy `singa` over the sizes of parameters, in the order in
// which their gradients are complete: a parameter above `threshold` elements is a partition of its
// own; others share one until it is above. Parameters without a gradient come last. Averages what
// LocalSgd averages (PlanAveraging), and no state of optimizers: those drift apart.
//
// FailedPrecondition: no op updates a replicated parameter; compressed gradients; several
// partitions without a startup program. By contract, a program with reduced gradients or averaged
// parameters. O(arguments).
class PartialAveraging : public Pass {
 public:
  static constexpr absl::string_view kName = "partial-averaging";
  static constexpr absl::string_view kDescription =
      "main program: averages a partition of the parameters over the ranks in each step, in turn";

  struct Options {
    int64_t threshold = 2097152;  // elements
    int nrings = 1;               // communication rings; partitions take them in turn
    void Bind(OptionBinder& bind);
  };
  explicit PartialAveraging(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_COMPAT_PARTIAL_AVERAGING_H_
