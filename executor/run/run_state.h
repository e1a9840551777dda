// What a run keeps between two steps, as a checkpoint has it.
#ifndef WEFT_EXECUTOR_RUN_RUN_STATE_H_
#define WEFT_EXECUTOR_RUN_RUN_STATE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/files/checkpoint.h"
#include "executor/plan/plan.h"
#include "ops/tensor.h"

namespace weft {

// A variable of the plan, and its name in a checkpoint: that of a persistable variable, or
// "@step/<variable>/<name>" of a carried value (executor/plan/carried_values.h), whose names
// repeat.
struct StateVariable {
  int variable;
  std::string name;
};

// The persistable variables of all blocks, each name once, and the carried values.
// FailedPrecondition for a persistable array of tensors, which a checkpoint cannot hold.
absl::StatusOr<std::vector<StateVariable>> StateOf(const Plan& plan,
                                                   const std::vector<int>& carried);

// The state of one rank, in host memory. Tensors share the memory of the rank's if that is the
// host's.
struct RankState {
  int64_t step = 0;  // Checkpoint::step
  std::map<std::string, Tensor> values;
  std::set<std::string> unset;  // variables without a value
  // On the way to process 0: variables that have the values of rank 0, instead of in `values`.
  std::set<std::string> as_rank0;
  std::string random;  // Checkpoint::random
};

// `tensors`: by variable of the plan. FailedPrecondition for SelectedRows, which a checkpoint
// cannot hold; errors of a device.
absl::StatusOr<RankState> ReadState(const std::vector<StateVariable>& state,
                                    absl::Span<Tensor* const> tensors);

// Sets step, values, random and nranks of a checkpoint whose num_servers is set. Values that have
// the same type and bits on all ranks are taken from rank 0. O(bytes of all ranks).
void MergeStates(std::vector<RankState> ranks, Checkpoint* checkpoint);

// FailedPrecondition if another number of ranks needs what differs between ranks (CheckRanks).
// InvalidArgument, naming the variable, expected and found, if the checkpoint has a variable that
// is not in `state`, lacks one, or has a value of another type than declared; and for random states
// that are none.
absl::Status CheckResume(const Checkpoint& checkpoint, const Plan& plan,
                         const std::vector<StateVariable>& state, int nranks);

// The value that a rank had when the checkpoint was written; nullptr: none.
const Tensor* FindValue(const Checkpoint& checkpoint, int rank, const std::string& name);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_STATE_H_
