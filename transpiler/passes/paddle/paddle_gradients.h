// What several of Paddle's transpiler classes do with gradients in the same way: by position in the
// root block and by role, walking from its last op to its first.
#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRADIENTS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// A pair that a backward op names.
struct PaddleGradient {
  OpId op;  // that names it
  std::string param;
  std::string grad;
  bool distributed = false;  // its parameter is: the gradient is not reduced
};

// All pairs of the root block in the order of the walk: the last op first, the pairs of one op in
// their order. Pairs that stand for no gradient are left out; a pair that is named twice is there
// twice. InvalidArgument: the errors of FindGradientPairs and CheckDistributedParams
// (ops/analysis/gradients.h). O(arguments).
absl::StatusOr<std::vector<PaddleGradient>> WalkGradients(const Program& program,
                                                          const PassContext& context);

// How many are not of distributed parameters.
int CountReplicated(absl::Span<const PaddleGradient> gradients);

// FailedPrecondition where `gradients` is empty.
absl::Status RequireGradients(absl::Span<const PaddleGradient> gradients);

// Inserts, after each op with replicated gradients, one c_sync_calc_stream for the first of them
// and then what `collective` builds for each and its ring, the last pair first (the op may change
// with the next call). Rings are dealt out
// in the order of the walk, so the gradient completed last has ring 0. Before the first op of
// optimize role: one c_sync_comm_stream per ring, which names the gradient that the walk met last,
// even if that one is not reduced.
void InsertCollectives(
    const Program& program, absl::Span<const PaddleGradient> gradients, int nrings,
    absl::FunctionRef<const pb::OpDesc&(const PaddleGradient&, int ring)> collective,
    Rewriter* rewriter);

// Notes, where they are wanted, in the name of `pass`; `what` is what it does with gradients
// ("reduced"). O(ops + gradients).
//
// Every gradient that InsertCollectives sends, with its ring; and as ExplainDistributed.
void ExplainCollectives(absl::string_view pass, absl::string_view what, const Program& program,
                        absl::Span<const PaddleGradient> gradients, int nrings,
                        PassContext& context);
// The gradients of distributed parameters, with which it does nothing.
void ExplainDistributed(absl::string_view pass, absl::string_view what,
                        absl::Span<const PaddleGradient> gradients, PassContext& context);
// All gradients, where it does nothing with any of them; `why`: with those of replicated ones.
void ExplainNothing(absl::string_view pass, absl::string_view what,
                    absl::Span<const PaddleGradient> gradients, absl::string_view why,
                    PassContext& context);

// The first op of the root block whose role has the optimize bit (those of learning-rate
// multipliers have it too); invalid where there is none.
OpId FirstOptimizeOp(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRADIENTS_H_
