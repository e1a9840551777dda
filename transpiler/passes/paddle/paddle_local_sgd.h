#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_LOCAL_SGD_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_LOCAL_SGD_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Averages parameters after every step, op for op as Paddle's LocalSGD. Ranks train separately;
// then a parameter becomes its last common value (the snapshot, a persistable variable w@SNAPSHOT)
// minus the mean over the ranks of what they subtracted from it.
//
// Main program, after each op with slots Param, Grad and LearningRate that updates a replicated
// parameter w, from the last op to the first, on rings in turn:
//   Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w])
//   Out=[w] = c_sync_calc_stream(X=[w])
//   Out=[w] = c_allreduce_sum(X=[w]) {ring_id}
// at the end one c_sync_comm_stream per ring, which names the parameter that is updated first, even
// a distributed one; then, for each w in the order of the updates:
//   Out=[w] = scale(X=[w]) {scale=1/trainers}
//   Out=[w] = elementwise_sub(X=[w@SNAPSHOT], Y=[w])
//   Out=[w@SNAPSHOT] = assign(X=[w])
// Startup program, at the end: Out=[w@SNAPSHOT] = assign(X=[w]) for each replicated parameter,
// BatchNorm statistics too, in the order of startup_parameters.h.
//
// Known defects of Paddle (docs/paddle_dialect.md): the final waits name one parameter for all (2);
// parameters are averaged in every step, but no statistics, optimizer states or fp32 master
// weights, and the master weights then overwrite the mean (22); updates without slot LearningRate
// (24) or in sub-blocks (25) are ignored.
//
// InvalidArgument: the number of trainers is unknown; an update names no parameter, or one that is
// no tensor of the root block. FailedPrecondition: no op updates a parameter; a snapshot already
// exists; by contract, reduced gradients. O(ops + arguments).
class PaddleLocalSgd : public Pass {
 public:
  static constexpr absl::string_view kName = "paddle-local-sgd";
  static constexpr absl::string_view kDescription =
      "main and startup program: averages parameters after each step exactly as Paddle's LocalSGD";
  struct Options {
    int nrings = 2;  // communication rings
    void Bind(OptionBinder& bind);
  };
  explicit PaddleLocalSgd(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  absl::Status RewriteMain(const PassContext& context, Program* main) const;
  absl::Status RewriteStartup(const PassContext& context, const ProgramPair& programs) const;

  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_LOCAL_SGD_H_
