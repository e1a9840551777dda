// The parameter updates of a program, and what exists for them alone.
#ifndef WEFT_TRANSPILER_PASSES_UPDATES_EXISTING_UPDATES_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_EXISTING_UPDATES_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

// An update of one parameter.
struct OldUpdate {
  OpId op;
  Symbol param, grad;
  Symbol skip;  // of slot SkipUpdate; invalid: none
};

// The updates of all blocks (FindUpdates), in the order of blocks and ops. The gradient is that of
// slot Grad, or, if `names_gradient` says so of the op, the one that its op_role_var names.
// InvalidArgument, naming the op: a parameter without a gradient. O(ops).
absl::StatusOr<std::vector<OldUpdate>> FindOldUpdates(
    const Program& program, const std::function<bool(const Op&)>& names_gradient);

// What can be erased with the update ops.
struct Leftovers {
  std::vector<OpId> ops;     // with the update ops
  std::vector<VarId> vars;   // that no other op names
  std::vector<OpId> owners;  // other ops that name these: they run a block with an erased op
};

// Finds what is of no use without the update ops of `updates`: ops of role optimize or lr_sched
// from which the updates read, directly or through others, and which nobody else reads. Such are
// learning rate schedules, the counters of their steps, powers of beta, and the ops that compute by
// what another op updates. `kept` are variables that are read in any case. Ops that write one of
// them stay: clipping and regularization, if they lead to a gradient of `kept`. Ops of other roles,
// unregistered ops, collectives and ops with side effects stay; branches (a piecewise learning
// rate) go with all ops of their blocks.
//
// Variables go if an op that goes names them and no other op does, but not parameters, data, or
// those of `kept`. O(arguments).
Leftovers FindLeftovers(const Program& program, const std::vector<OldUpdate>& updates,
                        const std::vector<Symbol>& kept);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_EXISTING_UPDATES_H_
