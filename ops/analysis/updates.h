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

// The updates of all blocks, in the order of blocks and ops. Ops of optimize role that Weft does
// not know count where they have slots Param and ParamOut; their other states are not known.
// O(ops).
std::vector<ParamUpdate> FindUpdates(const Program& program);

// Persistable tensors that forward ops of the root block rewrite in place, as batch normalization
// does its running mean and variance. Each once, in op order. O(arguments).
std::vector<Symbol> FindRunningStatistics(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_UPDATES_H_
