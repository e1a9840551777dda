#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRAD_ALL_REDUCE_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRAD_ALL_REDUCE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// All-reduces gradients op for op as Paddle's GradAllReduce, and as the two classes that derive
// from it where they do not fuse.
//
// After each backward op with pairs: one c_sync_calc_stream for its first replicated gradient, then
// a c_allreduce_sum per replicated gradient, the last pair first. Rings are assigned from the last
// op to the first, so the gradient completed last has ring 0. Before the first optimize op: one
// c_sync_comm_stream per ring, each of which names the gradient completed first, even if it is not
// reduced.
//
// Positions and roles decide all of this, which is wrong for some programs. Known defects of Paddle
// (docs/paddle_dialect.md): the waits name one gradient for all (2); accumulated gradients are
// reduced in each step (25); gradients of a second optimizer are not waited for (26); a gradient
// named twice is reduced twice (33). Pass grad-all-reduce has none of them; all but the first are
// warnings here.
//
// FailedPrecondition without gradients (but see Skip), which Paddle accepts; by contract, with
// reduced gradients. O(arguments).
class PaddleGradAllReduce : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-grad-all-reduce";
  static constexpr absl::string_view kDescription =
      "main program: all-reduces gradients exactly as Paddle's GradAllReduce";
  // When to change nothing.
  enum class Skip {
    kNever,
    kNoGradient,  // without replicated gradients: SingleProcessMultiThread
    kOneDevice,   // with one device per trainer: MultiThread, trans_mode all_reduce_xpu.
                  // InvalidArgument if devices are not given.
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
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRAD_ALL_REDUCE_H_
