#ifndef WEFT_TRANSPILER_PASSES_SERVERS_PARAMETER_SERVER_H_
#define WEFT_TRANSPILER_PASSES_SERVERS_PARAMETER_SERVER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/option_binder.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/passes/support/out_of_range.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Moves the parameters that the user gives to servers (ParamAttrs::parameter_server), with their
// optimizers and the state of these. The main program becomes that of the workers; the program of
// the servers goes to PassContext::server. Parameters have keys 0, 1, 2, ..., in the order of their
// updates.
//
// A worker:
//
//   ps_prefetch() {keys=ints[0]}                                   at the start: asks, and goes on
//   Out=[w] = ps_pull() {server_key=0}                             before the first use of w
//   Out=[rows] = ps_lookup(Ids=[ids]) {server_key=1}               was lookup_table_v2(W=[table])
//   ...
//   W@GRAD=[table@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[rows@GRAD]) {server_key=1}
//   ps_push(Grad=[w@GRAD], LearningRate=[lr]) {server_key=0}       was the optimizer of w
//   ps_push(Grad=[table@GRAD], LearningRate=[lr]) {server_key=1}
//
// A server:
//
//   Grad=[w@GRAD], LearningRate=[lr] = ps_receive() {server_key=0}  the mean over the workers
//   ParamOut=[w] = sgd(Grad=[w@GRAD], Param=[w], LearningRate=[lr]) {server_key=0}
//   ps_serve(X=[w]) {server_key=0}                                  answers pulls of the next step
//   ...
//
// Where ops between a gradient and its optimizer keep state, such as a velocity whose momentum
// decays, they go to the servers, too; workers push the gradient that these ops read.
//
// A table, of which a step needs the rows that it looks up, is held by rows: a parameter with a
// row-sparse gradient that only lookups of the root block read, and whose optimizer is elementwise.
// All others are held whole. With `wait` all_keys, all ps_receive come before the first optimizer.
// With `async`, each gradient is an update of its own. With `prefetch_rows`, lookups whose ids are
// fed have attribute `prefetch`: workers prefetch the rows of the next step while a step runs. A
// note names each other lookup. With `out_of_range` zeros, lookups and their gradients have
// attribute `zeros_out_of_range`, as have those that had it before.
//
// The startup program does not change: workers and servers both run it, and keep what their
// programs declare as persistable.
//
// Without parameters that are given to servers, nothing changes, and there is no such program.
//
// FailedPrecondition, naming parameter and op: a parameter that is not updated by exactly one
// optimizer, of this parameter alone, in the root block; a type that is not known; an op that
// writes the parameter or its optimizer's state, or reads that state; an op that reads the
// parameter after its update; the conditions of ReductionAverages; `prefetch_rows` without a lookup
// whose ids are fed; `out_of_range` zeros without a table that is held by rows. InvalidArgument:
// `staleness` without `async`, or `wait` all_keys with it. O(arguments).
class ParameterServer : public Pass {
 public:
  static constexpr absl::string_view kName = "parameter-server";
  static constexpr absl::string_view kDescription =
      "main program: servers hold and update the parameters that option:param_attrs gives to them";
  enum class Wait { kPerKey, kAllKeys };
  struct Options {
    GradientScale scale = GradientScale::kAuto;
    Wait wait = Wait::kPerKey;
    bool is_async = false;
    absl::optional<int> staleness;  // none: 4
    bool prefetch_rows = false;
    OutOfRange out_of_range = OutOfRange::kError;
    void Bind(OptionBinder& bind);
  };
  explicit ParameterServer(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  bool HasTrait(PassTrait trait) const override { return trait == PassTrait::kMakesServer; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  absl::Status CheckOptions() const;

  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SERVERS_PARAMETER_SERVER_H_
