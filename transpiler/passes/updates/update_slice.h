// The part of a training step that turns gradients into updates, which can run less often than the
// rest.
#ifndef WEFT_TRANSPILER_PASSES_UPDATES_UPDATE_SLICE_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_UPDATE_SLICE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// A gradient that the update part uses.
struct PartGradient {
  Symbol param;
  Symbol paired;      // that op_role_var names
  Symbol grad;        // that is accumulated: `paired`, or what the only op that uses it casts it to
  OpId completed_by;  // the cast, or the last backward op that writes or reads it
  TensorType type;    // of `grad`: dense, of known dimensions
};

struct UpdateSlice {
  std::vector<PartGradient> gradients;  // in the order of completion
  // The ops of the root block of role optimize or lr_sched, in order, without the casts that belong
  // to gradients.
  std::vector<OpId> ops;
  // The variables of the root block that they, or the ops of their sub-blocks, read before they
  // write them, and all that they write. Each once, in the order of the ops.
  std::vector<Symbol> reads;
  std::vector<Symbol> writes;
  // Parameters that ops of every step update, from other parameters alone: target networks.
  struct OtherUpdate {
    OpId op;
    Symbol param;
  };
  std::vector<OtherUpdate> updated_in_every_step;
};

// Divides the root block. The update part may run at the end of a step, and in some steps only, if
// the gradients are accumulated over the others.
//
// FailedPrecondition, naming op and variable, if that would compute something else:
//   - no gradient that the update part uses
//   - a gradient that is accumulated already, that is sparse or of unknown dimensions, or whose
//     variable holds several in turn
//   - a gradient that an op of every step, but not of backward, uses
//   - an op of every step that reads what an op of the update part before it writes, or writes
//     what that one reads or writes
//   - an op of every step that updates a parameter by what backward computes
//   - an op of the update part that reads a value of this step: one that ops compute from data, or
//     in backward, and that is neither a gradient nor persistable. Data of one element, such as a
//     learning rate that is fed, are read as they are.
// InvalidArgument: the errors of AnalyzeGradients. O(arguments).
absl::StatusOr<UpdateSlice> FindUpdateSlice(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_UPDATE_SLICE_H_
