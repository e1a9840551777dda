// Follows the values of a step along the batch: what each rank's value has to do with that of one
// device, which gets the batches of all ranks (ops/schema/batch_relation.h).
//
// Abstract interpretation, in program order, with one rule for each op. It assumes that all ranks
// start with the values of one device, that gradient ops compute the gradients of their forward
// ops, and that optimizers (ops with Param and Grad) write what one device writes. States keep, in
// the next step, what this one leaves.
#ifndef WEFT_OPS_ANALYSIS_BATCH_FLOW_H_
#define WEFT_OPS_ANALYSIS_BATCH_FLOW_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "ops/analysis/feed_layout.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/batch_rules.h"
#include "proto/program.h"

namespace weft {

struct BatchValue {
  BatchRelation relation;
  // Of an unrelated value: the op that first made it one. Invalid: a state that an earlier step
  // left unrelated.
  OpId cause;
  // Zero everywhere, which is any multiple, mean and sum of zeros.
  bool is_zero = false;
  // Of a gradient that a gradient op has just written: LossPower of it and its variable.
  static constexpr int8_t kNoLoss = 127;
  int8_t loss_power = kNoLoss;
};

// An op whose outputs differ from those of one device, whatever their relation.
struct BatchEffectAt {
  OpId op;
  BatchEffect effect;
};

// A persistable variable that a step from the values of one device leaves with another relation.
struct BatchState {
  VarId variable;
  OpId writer;  // the last op that writes it
  BatchValue value;
};

// An optimizer whose gradient is n^power times that of one device, with a power other than 0.
struct BatchUpdate {
  OpId op;
  Symbol gradient;
  int power;
};

struct BatchFlowOptions {
  // Of all data variables (FeedLayoutsOf); others are whole.
  FeedLayouts feeds;
  // The number of ranks; none: unknown. A rewritten program divides by it.
  absl::optional<int> nranks;
  // Variables that the startup program fills with zeros.
  std::set<std::string> zeros;
  // Follow one step up to the last loss (FindLosses).
  bool only_losses = false;
};

class BatchFlow {
 public:
  // O(arguments) for each of at most four walks.
  static BatchFlow Of(const Program& program, const BatchFlowOptions& options);

  // At the end of the step. Of a variable that the step does not write: its value at the start.
  const BatchValue& AtEnd(VarId var) const { return values_[var.value()]; }
  bool IsWritten(VarId var) const { return is_written_[var.value()]; }
  // In op order.
  const std::vector<BatchEffectAt>& effects() const { return effects_; }
  // In op order.
  const std::vector<BatchUpdate>& updates() const { return updates_; }
  // In the order of declarations, those first that do not depend on others.
  const std::vector<BatchState>& states() const { return states_; }
  // Ops with a block that runs or not, or so many times, by a value that is not that of one device.
  const std::vector<OpId>& conditions() const { return conditions_; }

 private:
  friend class BatchInterpreter;

  std::vector<BatchValue> values_;  // by VarId
  std::vector<bool> is_written_;
  std::vector<BatchEffectAt> effects_;
  std::vector<BatchUpdate> updates_;
  std::vector<BatchState> states_;
  std::vector<OpId> conditions_;
};

// Whether the losses of a program are sums over the batch; false for means. None if there is none,
// if one is neither, or if they are of both kinds.
absl::optional<bool> LossesAreSums(const Program& program, const BatchFlow& flow);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_BATCH_FLOW_H_
