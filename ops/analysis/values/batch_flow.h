// Follows the values of a step along the batch: what each rank's value has to do with that of one
// device, which gets the batches of all ranks (ops/schema/batch_relation.h).
//
// Abstract interpretation, in program order, with one rule for each op. It assumes that all ranks
// start with the values of one device, that kernels of gradient ops compute the adjoint of the op
// that they are named after, and that optimizers (ops with Param and Grad) write what one device
// writes, except for own_updates. States keep, in the next step, what this one leaves.
#ifndef WEFT_OPS_ANALYSIS_VALUES_BATCH_FLOW_H_
#define WEFT_OPS_ANALYSIS_VALUES_BATCH_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/communication_ops.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

struct BatchValue {
  BatchValue() : BatchValue(BatchRelation()) {}
  explicit BatchValue(BatchRelation relation, OpId cause = OpId(), bool is_zero = false)
      : relation(relation),
        cause(cause),
        is_zero(is_zero),
        is_summed(false),
        is_gradient(false),
        is_affected(false),
        is_guessed(false) {}

  BatchRelation relation;
  // Of the partial values of all ranks, one after the other: the op that gathered them. Of one of
  // them: the op that split them. Their power.
  int8_t gathered_unscaled_sums = 0;
  OpId gathered_by = {};
  // Of an unrelated value: the op that first made it one, or a partial maximum, minimum or product.
  // Invalid: a state that an earlier step left unrelated.
  OpId cause;
  // Zero everywhere, which is any multiple, mean and sum of zeros.
  bool is_zero : 1;
  // Computed from values that a collective has summed over the ranks.
  bool is_summed : 1;
  // Written by gradient ops, or a sum or multiple of such.
  bool is_gradient : 1;
  // With follow_effects: an effect, or a value that is not that of one device for another reason
  // than its relation, went into it.
  bool is_affected : 1;
  // Depends on a factor without attribute nranks that counts as a division by the number of ranks.
  bool is_guessed : 1;

  // Whether all ranks have the value of one device.
  bool IsOfOneDevice() const { return relation.IsSame() && !is_affected; }
};

static_assert(sizeof(BatchValue) == 16, "there is one for each variable");

// An op whose outputs differ from those of one device, whatever their relation.
struct BatchEffectAt {
  OpId op;
  BatchEffect effect;
};

// An op with a block that runs or not, or so many times, by a value that is not that of one device.
struct BatchCondition {
  OpId op;
  Symbol variable;
  BatchValue value;
};

// A value that the step hands out, by an op for that.
struct BatchFetch {
  OpId op;
  VarId variable;
  BatchValue value;
};

// A persistable variable that a step from the values of one device leaves with another relation.
struct BatchState {
  VarId variable;
  OpId writer;  // the last op that writes it
  BatchValue value;
};

// An optimizer that reads another gradient or parameter than one device, or a multiple of what one
// device computes, such as of a rate.
struct BatchUpdate {
  OpId op;
  Symbol input;
  bool is_gradient;
  BatchValue value;
};

// An op of the root block after which a partial value is the value of one device times a power of
// the number of ranks. A collective; or an op that divides what is computed from such a sum by the
// number of ranks; or, in the backward pass, one that sums the gradient of such a sum.
struct ForwardReduction {
  OpId op;
  // What a collective adds to the power of a mean. 0 for sums and for divisions: the power of what
  // follows from them, such as the loss or a rate, says whether those are right.
  int power;
};

// An op whose inputs have known relations, but an output has none, or is a partial maximum, minimum
// or product.
struct LostRelation {
  OpId op;
  std::vector<BatchRelation> inputs;  // by Op::input_args()
};

// What an op might read instead of an input.
enum class BatchInputEdit : uint8_t {
  kAverage,  // its mean over the ranks
  kSum,      // its sum over the ranks
  kGather,   // the parts of all ranks, along axis 0
  kDivide,   // its n-th part, for n ranks
};

// The relation of the edited input.
BatchRelation AfterEdit(BatchInputEdit edit, BatchRelation in);

// Collectives and divisions that a program might have: BatchFlow follows the values as if it had
// them.
struct BatchEdits {
  // Reduced over the ranks, in place, after the op that writes them.
  absl::flat_hash_map<VarId, Reduction> reductions;
  // By op: index in Op::input_args().
  absl::flat_hash_map<OpId, std::map<size_t, BatchInputEdit>> inputs;

  bool empty() const { return reductions.empty() && inputs.empty(); }
};

struct BatchFlowOptions {
  // Of the run: feeds of all data variables (FeedLayoutsOf; others are whole), shares, and nranks,
  // by which a rewritten program divides. The rest is ignored.
  Setting setting;
  // Variables that the startup program fills with zeros.
  std::set<std::string> zeros;
  // Variables that begin a step as one device does not, for a reason that lies outside the step:
  // BatchValue::is_affected.
  std::set<std::string> affected = {};
  enum class Extent : uint8_t {
    kAllSteps,  // until states stay
    kOneStep,
    kToLosses,  // one step up to the last loss (FindLosses), or the gradient that begins there
  };
  Extent extent = Extent::kAllSteps;
  BatchEdits edits = {};
  // Find the values that effects and unrelated values change, which takes more walks.
  bool follow_effects = false;
  // The program before its rewrite, if known: factors that it has are no divisions by the number of
  // ranks. Must outlive the call.
  const Program* original = nullptr;
};

class BatchFlow {
 public:
  // O(arguments) for each of a few walks: 65 at most, for long chains of states.
  static BatchFlow Of(const ProgramFacts& program, const BatchFlowOptions& options);

  // At the end of the step. Of a variable that the step does not write: its value at the start.
  const BatchValue& AtEnd(VarId var) const { return values_[var.value()]; }
  bool IsWritten(VarId var) const { return is_written_[var.value()]; }
  // In op order.
  const std::vector<BatchEffectAt>& effects() const { return effects_; }
  // In op order.
  const std::vector<BatchUpdate>& updates() const { return updates_; }
  // In the order of declarations, those first that do not depend on others.
  const std::vector<BatchState>& states() const { return states_; }
  const std::vector<BatchCondition>& conditions() const { return conditions_; }
  // The optimizers whose parameters ranks average, and whose updates by the ranks' own gradients do
  // not average to that of one device. The averages count as what one device has nevertheless, the
  // parameters before and all states of the optimizers as the rank's part of a mean. In op order.
  const std::vector<OpId>& own_updates() const { return own_updates_; }
  // Each op once, with the inputs that it has when it first loses a relation. In that order.
  const std::vector<LostRelation>& lost_relations() const { return lost_relations_; }
  // In op order. Those of loops several times.
  const std::vector<BatchFetch>& fetches() const { return fetches_; }
  // In op order.
  const std::vector<ForwardReduction>& forward_reductions() const { return forward_reductions_; }
  // The gradient ops of loops whose gradients the walk has taken at their names. In op order.
  const std::vector<OpId>& loop_gradients() const { return loop_gradients_; }
  // The gradient ops of a program without a forward pass (GradientsOfAbsentOps), which the walk has
  // taken at their names. In op order.
  const std::vector<OpId>& absent_gradients() const { return absent_gradients_; }

 private:
  friend class BatchInterpreter;

  std::vector<BatchValue> values_;  // by VarId
  std::vector<bool> is_written_;
  std::vector<BatchEffectAt> effects_;
  std::vector<BatchUpdate> updates_;
  std::vector<BatchState> states_;
  std::vector<BatchCondition> conditions_;
  std::vector<OpId> own_updates_;
  std::vector<LostRelation> lost_relations_;
  std::vector<BatchFetch> fetches_;
  std::vector<ForwardReduction> forward_reductions_;
  std::vector<OpId> loop_gradients_;
  std::vector<OpId> absent_gradients_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_BATCH_FLOW_H_
