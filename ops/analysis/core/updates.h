// The variables that a training program updates.
#ifndef WEFT_OPS_ANALYSIS_CORE_UPDATES_H_
#define WEFT_OPS_ANALYSIS_CORE_UPDATES_H_

#include <vector>

#include "absl/status/status.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"

namespace weft {

// An optimizer op, and the variables that it rewrites.
struct ParamUpdate {
  OpId op;
  Symbol param;
  Symbol master;               // the parameter in higher precision; invalid: none
  std::vector<Symbol> states;  // moments, velocities, powers of beta: in the order of the slots
};

// The updates of all blocks, in the order of blocks and ops. An unregistered op of role optimize
// counts if it has slots Param and ParamOut; its other states are unknown. O(ops).
std::vector<ParamUpdate> FindUpdates(const Program& program);

// InvalidArgument for a program that updates a parameter: given as the startup program, a main
// program would be taken for one that initializes nothing. O(ops).
absl::Status CheckIsStartup(const Program& program);

// Running statistics: persistable floating-point tensors that only forward ops write, in place,
// such as the running mean and variance of batch normalization. A variable marked as a parameter
// counts only if the schema of the op says that it is written in place, or the op is unregistered.
// Each once, in op order. O(arguments).
std::vector<Symbol> FindRunningStatistics(const ProgramFacts& facts);

// Parameters that ops other than optimizers update, such as target networks and the averages of a
// mean teacher: floating-point variables of the root block that a step writes, that are marked as
// parameters or trained by hand, and that are neither running statistics nor optimizer state. Each
// once, in op order. O(arguments).
std::vector<Symbol> FindManuallyUpdatedParams(const ProgramFacts& facts);

// Persistable variables that are not marked as parameters, but have a gradient (NAME@GRAD) and are
// not written by forward ops. By declaration. O(variables + arguments).
std::vector<Symbol> FindTrainedByHand(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_UPDATES_H_
