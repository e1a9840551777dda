#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_ALL_GATHER_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_ALL_GATHER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// The exchange of gradients op for op as Paddle's MultiThread with trans_mode all_gather writes it:
// every rank gets the gradients of all R = trainers x devices ranks (9 devices where they are not
// given) and updates with each in turn.
//
// After each backward op with pairs, in the order of paddle-grad-all-reduce: one
// c_sync_calc_stream, then per replicated gradient w@GRAD
//   Out=[w_allgather] = c_allgather(X=[w@GRAD]) {nranks=R, ring_id}
// and one c_sync_comm_stream per ring before the first op of optimize role. w_allgather is declared
// for distributed parameters too, as [R, ...]. Each adam op becomes
//   Out=[w_0, ..., w_R-1] = split(X=[w_allgather]) {num=R, axis=0}
//   ... = adam(Grad=[w_0], ...)    and so on for w_1, ..., each over the last one's results
// with the plain slots and attributes of the original only, under role forward.
//
// Known defects of Paddle's (docs/paddle_dialect.md): not a step with the mean gradient, and the
// powers of beta advance R times (9); master weights, op_role, pairs and other attributes are lost
// (10); other optimizers go on with their local gradient (12); clipping and regularization count
// for nothing (13); all new variables are fp32 (14), a gradient gathered for a distributed
// parameter is never written (15); the default has 9 devices (8).
//
// FailedPrecondition: no gradients, a lamb op (Paddle throws); by contract, where gradients are
// reduced already. InvalidArgument: fewer than 2 ranks or an unknown number, a parameter with two
// pairs, a parameter or gradient that is no tensor, an adam op without a variable in one of its
// slots or without a gradient that is gathered. O(arguments + adam ops x R).
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
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_ALL_GATHER_H_
