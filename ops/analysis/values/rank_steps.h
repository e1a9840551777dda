// Values at the start of a step, and what one step leaves to the next.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_STEPS_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_STEPS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"

namespace weft {

// Which states become rank-local, so that the fixpoint is reached.
enum class Widening : uint8_t {
  kNone,
  kChanged,  // those that the step changes
  kAll,      // those that the step writes
};

class RankSteps {
 public:
  // All must outlive this object.
  RankSteps(const Program& program, const RankValuesOptions& options, const RankMemory& memory);

  // Sets the values of all variables at the start of a step, by VarId. O(variables).
  void SetStart(std::vector<RankValue>* values) const;
  // Has the next step start with what this one leaves in memory, joined to the values before;
  // returns whether one changed. O(variables).
  bool CarryOver(Widening widening);
  // Begins with the first step again.
  void Restart() { carried_.clear(); }

  // At the start of the first step, by VarId. O(variables).
  std::vector<RankValue::Placement> FirstPlacements() const;
  absl::flat_hash_map<VarId, RankValue> TakeCarried() { return std::move(carried_); }

 private:
  RankValue::Placement FirstPlacement(const Var& var) const;
  RankValue FirstValue(const Var& var) const;

  const Program& program_;
  const RankValuesOptions& options_;
  const RankMemory& memory_;
  absl::flat_hash_set<VarId> whole_;  // data that all ranks get the whole of
  // Of variables that earlier steps changed. Sparse, because few change and values are large.
  absl::flat_hash_map<VarId, RankValue> carried_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_STEPS_H_
