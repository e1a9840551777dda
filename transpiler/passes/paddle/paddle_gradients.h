// How Paddle's transpiler classes find and exchange gradients: by position in the root block and by
// role, from the last op to the first. And what is wrong with it.
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
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// A pair of op_role_var.
struct PaddleGradient {
  OpId op;  // whose op_role_var it is
  std::string param;
  std::string grad;
  bool distributed = false;  // belongs to a distributed parameter: it is not reduced
};

// All pairs of the root block, those of the last op first, the pairs of one op in their order.
// Skips pairs with an empty gradient; repeats a pair that is named twice. InvalidArgument: the
// errors of FindGradientPairs and CheckDistributedParams (ops/analysis/training/gradients.h).
// O(arguments).
absl::StatusOr<std::vector<PaddleGradient>> WalkGradients(const Program& program,
                                                          const PassContext& context);

// The number of gradients of replicated parameters.
int CountReplicated(absl::Span<const PaddleGradient> gradients);

// FailedPrecondition if `gradients` is empty.
absl::Status RequireGradients(absl::Span<const PaddleGradient> gradients);

// Inserts, after each op with replicated gradients, one c_sync_calc_stream for the first of them,
// then a collective from each gradient to its `output`, for the last pair first. Rings change from
// gradient to gradient, so the gradient completed last has ring 0. Inserts, before the first
// optimize op, one c_sync_comm_stream per ring, which names the last of `gradients` even if it is
// not reduced. `collectives`: by ring.
void InsertCollectives(const Program& program, absl::Span<const PaddleGradient> gradients,
                       absl::FunctionRef<std::string(const PaddleGradient&)> output,
                       std::vector<OpTemplate>* collectives, Rewriter* rewriter);

// Adds remarks of `pass`: each replicated gradient is `what` ("reduced") on its ring, and the
// others are not. O(ops + gradients).
void ExplainCollectives(absl::string_view pass, absl::string_view what, const Program& program,
                        absl::Span<const PaddleGradient> gradients, int nrings,
                        const PassContext& context);
// Adds remarks of `pass`: gradients of distributed parameters are not `what`, nor those of
// replicated parameters if `why` is not empty.
void ExplainSkipped(absl::string_view pass, absl::string_view what,
                    absl::Span<const PaddleGradient> gradients, absl::string_view why,
                    const PassContext& context);

// The first optimize op of the root block (learning-rate multipliers have this role, too); invalid
// if there is none.
OpId FirstOptimizeOp(const Program& program);

// Where Paddle's classes insert the collectives.
enum class PaddleExchange {
  kOneByOne,             // after each op with pairs; one wait before the first optimize op
  kBeforeFirstOptimize,  // all before the first optimize op
  kAfterLastGradient,    // all after the last op with pairs
};

// Warns about each program that grad-all-reduce refuses, and about the defects that it avoids: a
// gradient that is row-sparse, reduced twice, before it is complete or after its use, not waited
// for, accumulated over several steps and reduced in each, or not reduced because there is no
// optimize op. At most one warning of each kind, in the name of `pass`. O(arguments).
absl::Status WarnAboutReduction(absl::string_view pass, const Program& program,
                                PaddleExchange exchange, const PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_GRADIENTS_H_
