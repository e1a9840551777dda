#ifndef WEFT_TRANSPILER_PASSES_DEVICES_EMBEDDING_OFFLOAD_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_EMBEDDING_OFFLOAD_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/passes/support/out_of_range.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Puts embedding tables on the host: sets op_device of the ops that look up rows of a table whose
// name matches `tables`, of those that compute its gradient, of those between that and its
// optimizer, and of the optimizer. Pass hetero-partition, which must follow, makes the copies. The
// table, its state and its row-sparse gradient stay in the memory of the host; the rows that a
// batch looks up go to the accelerator, and the gradient of these rows comes back.
//
//   Out=[e] = lookup_table_v2(W=[w], Ids=[ids]) {op_device="cpu"}
//   ...
//   W@GRAD=[w@GRAD] = lookup_table_v2_grad(...) {is_sparse=true, op_device="cpu"}
//   ParamOut=[w] = adam(Param=[w], Grad=[w@GRAD], ...) {lazy_mode=true, op_device="cpu"}
//
// The host's optimizers add up rows of the same index before they use them. With
// out_of_range=zeros, lookups and gradients get zeros_out_of_range=true.
// With use_nesterov, adam with lazy_mode gets use_nesterov=true, and is then MindSpore's LazyAdam
// with Nesterov momentum.
// Without `tables`, those that cannot go to the host stay on the accelerator, which a note says.
//
// InvalidArgument: no table matches. If a table that matches, or without `tables` each of them, has
// one of these, FailedPrecondition, naming op and variable: a gradient that is
// not row-sparse, which would be as large as the table; an op other than these that uses the table,
// as a product with a shared weight does; rows that an op makes dense, but for a norm of the rows
// of a gradient, which clipping needs; uses in blocks; with
// use_nesterov, another optimizer.
// O(arguments).
class EmbeddingOffload : public Pass {
 public:
  static constexpr absl::string_view kName = "embedding-offload";
  static constexpr absl::string_view kDescription =
      "main program: puts embedding tables on the host, before hetero-partition";
  struct Options {
    std::string tables;  // empty: all that can, one at least
    OutOfRange out_of_range = OutOfRange::kError;
    bool use_nesterov = false;
    void Bind(OptionBinder& bind);
  };
  explicit EmbeddingOffload(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  Claims claims(const PassContext& context) const override;
  bool HasTrait(PassTrait trait) const override { return trait == PassTrait::kChangesAnyProgram; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  const Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_EMBEDDING_OFFLOAD_H_
