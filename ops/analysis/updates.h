// What a training program changes from step to step.
#ifndef WEFT_OPS_ANALYSIS_UPDATES_H_
#define WEFT_OPS_ANALYSIS_UPDATES_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// An optimizer op, and the variables that it rewrites.
struct ParamUpdate {
  OpId op;
  Symbol param;
  Symbol master;               // the parameter in higher precision; invalid: there is none
  std::vector<Symbol> states;  // moments, velocities, powers of beta: in the order of the slots
};

// The updates of all blocks, in the order of blocks and ops. An unregistered op of role optimize
// counts if it has slots Param and ParamOut; its other states are unknown. O(ops).
std::vector<ParamUpdate> FindUpdates(const Program& program);

// Running statistics: persistable floating-point tensors that forward ops of any block rewrite in
// place, as batch normalization does its running mean and variance, and that no other op writes. A
// marked parameter counts only where the schema of the op says that it is rewritten in place, or
// the op has no schema. Each once, in op order. O(arguments).
std::vector<Symbol> FindRunningStatistics(const Program& program);

// Parameters that ops other than optimizers update, such as target networks and the averages of a
// mean teacher: floating-point variables of the root block that are written in a step, are marked
// as parameters or are trained by hand, and are no running statistic and no optimizer state. Each
// once, in op order. O(arguments).
std::vector<Symbol> FindManuallyUpdatedParams(const Program& program);

// Persistable variables that are not marked as parameters, but have a gradient (NAME@GRAD) and are
// not written by forward ops. By declaration. O(variables + arguments).
std::vector<Symbol> FindTrainedByHand(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_UPDATES_H_
