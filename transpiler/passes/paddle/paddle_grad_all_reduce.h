#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRAD_ALL_REDUCE_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRAD_ALL_REDUCE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// The gradient all-reduce op for op as Paddle's GradAllReduce writes it, and the two classes that
// derive from it where they do not fuse.
//
// After each backward op with pairs: one c_sync_calc_stream for its first replicated gradient, then
// a c_allreduce_sum per replicated gradient, the last pair first. Rings are dealt out walking
// backwards, so the gradient completed last has ring 0. Before the first op of optimize role stands
// one c_sync_comm_stream per ring, each naming the gradient that the walk met last: the first one
// completed, even if it is not reduced.
//
// Everything goes by position and role, which is wrong for some programs. Known defects of Paddle's
// (docs/paddle_dialect.md): the waits name one gradient for all (2); accumulated gradients are
// reduced in each step (25); a second optimizer's gradients are not waited for (26); a gradient
// named twice is reduced twice (33). Pass grad-all-reduce mends that; all but the first are
// warnings here.
//
// FailedPrecondition where there are no gradients (but see Skip); by contract, where they are
// reduced already (Paddle accepts both). O(arguments).
class PaddleGradAllReduce : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-grad-all-reduce";
  static constexpr absl::string_view kDescription =
      "main program: all-reduces gradients exactly as Paddle's GradAllReduce";
  // When to change nothing.
  enum class Skip {
    kNever,
    kNoGradient,  // no replicated one: SingleProcessMultiThread
    kOneDevice,  // each trainer drives one: MultiThread, trans_mode all_reduce_xpu. InvalidArgument
                 // where devices are not given.
  };
  struct Options {
    int nrings = 2;  // communication rings
    Skip skip = Skip::kNever;
    void Bind(OptionBinder& bind);
  };
  explicit PaddleGradAllReduce(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRAD_ALL_REDUCE_H_
