// In which steps conditions of a program hold.
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_CONDITION_STEPS_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_CONDITION_STEPS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/scalar_slice.h"
#include "proto/program.h"
#include "proto/program_pair.h"

namespace weft {

// Runs conditions from the startup program on (ScalarSlice). Conditions that compare one scalar
// with different constants, such as the remainder of a counter, share one run.
class ConditionSteps {
 public:
  struct Steps {
    std::vector<int> held;  // ascending, from 1
    int last = 0;           // the last step that was run
    absl::Status failure;   // of the step after `last`
  };

  // The programs must outlive this object. The startup program may be null.
  explicit ConditionSteps(const ConstProgramPair& programs) : programs_(programs) {}

  // Announces a condition, the value of `variable` before op `before` of the root block. Conditions
  // announced after a run that they could share have one of their own.
  void Add(OpId before, Symbol variable);

  // Runs to step `horizon`, unless a step fails, and returns the steps of an announced condition:
  // valid until the next call of Add. Unimplemented, with the reason, if it cannot be followed, or
  // if all runs together would take too many ops. O(arguments) for each run to begin.
  absl::StatusOr<const Steps*> Run(OpId before, Symbol variable, int horizon);

 private:
  // A scalar that is run, and the constants with which conditions compare it.
  struct Scalar {
    OpId before;
    Symbol variable;
    absl::optional<absl::StatusOr<ScalarSlice>> slice;  // none: not run yet
    int last = 0;
    absl::Status failure;
    absl::flat_hash_map<int64_t, Steps> of_constant;
    absl::optional<Steps> of_truth;  // it is the condition itself
  };
  struct Comparison {
    OpId op;
    Symbol scalar;
    int64_t constant;
  };
  using Key = std::pair<OpId, Symbol>;

  void FindWriters();
  // The op of the root block before op `before` that alone writes the variable. Invalid: none.
  OpId WriterBefore(OpId before, Symbol variable) const;
  absl::optional<Comparison> ComparisonOf(OpId before, Symbol condition) const;
  absl::optional<int64_t> ConstantBefore(OpId before, Symbol variable) const;
  absl::Status Extend(Scalar* scalar, int horizon);

  const ConstProgramPair programs_;
  int64_t ops_left_ = int64_t{1} << 26;  // of all runs; half a second
  std::vector<int> position_;     // by OpId, in the root block; -1: elsewhere. Empty: not found yet
  std::vector<int> num_writers_;  // by Symbol, of all blocks
  std::vector<OpId> writer_;      // by Symbol
  std::map<Key, std::unique_ptr<Scalar>> scalars_;
  std::map<Key, std::pair<Scalar*, absl::optional<int64_t>>> conditions_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_CONDITION_STEPS_H_
