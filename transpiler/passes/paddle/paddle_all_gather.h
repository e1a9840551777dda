#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_ALL_GATHER_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_ALL_GATHER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Exchanges gradients op for op as Paddle's MultiThread with trans_mode all_gather: every rank
// gathers the gradients of all R = trainers x devices ranks (default: 9 devices) and updates with
// each in turn.
//
// After each backward op with pairs, in the order of paddle-grad-all-reduce: one
// c_sync_calc_stream, then per replicated gradient w@GRAD
//   Out=[w_allgather] = c_allgather(X=[w@GRAD]) {nranks=R, ring_id}
// and one c_sync_comm_stream per ring before the first optimize op. Distributed parameters get a
// declaration of w_allgather, too, as [R, ...]. Each adam op becomes
//   Out=[w_0, ..., w_R-1] = split(X=[w_allgather]) {num=R, axis=0}
//   ... = adam(Grad=[w_0], ...)    and so on for w_1, ..., each on the results of the last
// with the plain slots and attributes of the original only, under role forward.
//
// Known defects of Paddle (docs/paddle_dialect.md): a step does not use the mean gradient, and the
// powers of beta advance R times (9); master weights, op_role, pairs and other attributes are lost
// (10); other optimizers use their local gradient (12); clipping and regularization have no effect
// (13); all new variables are fp32 (14); the gathered gradient of a distributed parameter is never
// written (15); the default has 9 devices (8).
//
// FailedPrecondition: no gradients, a lamb op (Paddle throws); by contract, reduced gradients.
// InvalidArgument: fewer than 2 ranks or an unknown number, a parameter with two pairs, a parameter
// or gradient that is no tensor, an adam op with an empty slot or without a gathered gradient.
// O(arguments + adam ops x R).
class PaddleAllGather : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-all-gather";
  static constexpr absl::string_view kDescription =
      "main program: gathers gradients and updates with each exactly as Paddle's MultiThread";
  struct Options {
    int nrings = 1;  // communication rings
    void Bind(OptionBinder& bind);
  };
  explicit PaddleAllGather(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_ALL_GATHER_H_
