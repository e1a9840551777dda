// What the variables of a program hold when many ranks run it, compared with what one device would
// compute.
//
// Abstract interpretation: the program is walked once, in order; every value is known by where it
// is the same and by what it would be on one device that is given the batches of all ranks. Data
// parallel training rests on one fact: a gradient is linear in the gradient of the loss, which is a
// mean over samples, so that the mean over ranks of their gradients is the gradient of all samples.
// Whatever is linear in a gradient has that property too; whatever is not (clipping, a norm, an
// optimizer) has to come after the mean.
#ifndef WEFT_OPS_ANALYSIS_RANK_VALUES_H_
#define WEFT_OPS_ANALYSIS_RANK_VALUES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/rank_value.h"
#include "proto/program.h"

namespace weft {

// Observes the walk over a program. Overrides what it wants to know.
class RankObserver {
 public:
  virtual ~RankObserver() = default;
  // Discards all events so far: the walk starts again, knowing more of what one step leaves to the
  // next.
  virtual void Restart() {}
  // An optimizer op, by any slots Param and Grad.
  virtual void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) {}
  // For each variable that takes part; a fused buffer is its members.
  virtual void OnCollective(const Op& op, Symbol variable, const RankValue& in) {}
  // An op that multiplies by a number; whether that counts as a division by the number of ranks.
  virtual void OnScale(const Op& op, bool divides) {}
  // An op that runs its block, or not.
  virtual void OnBranch(const Op& op, Symbol condition, const RankValue& value) {}
  // An op that runs a block in a way that is not followed (a loop).
  virtual void OnOpaqueBlock(const Op& op) {}
};

struct RankValuesOptions {
  // Of ranks; none: unknown, so that nothing holds which does not for any number.
  absl::optional<int> nranks;
  // The program is meant for one device: nothing is local, collectives are functions like others.
  bool is_one_device = false;
  // A startup program: nothing is there when it begins.
  bool is_startup = false;
  // What the startup program leaves, by name; null: persistable variables are the same on all
  // ranks.
  const absl::flat_hash_map<std::string, RankValue>* start = nullptr;
  std::set<std::string> distributed_params;
  // Sums over ranks are wanted as they are: the first one that a value goes through counts as a
  // mean.
  bool sums_are_wanted = false;
  // Where expressions go; null: they are not made, which takes a fraction of the time.
  ExpressionTable* table = nullptr;
  // They are made from that op of the root block on, as counted there: whatever variables hold by
  // then is Initial(name), with the factor that follows from its power, or, where none does, an
  // expression of its own. With is_one_device the ops before are not walked at all.
  size_t first_expression = 0;
  // By OpId: ops that the program had before it was rewritten. What they multiply by is no division
  // by the number of ranks, whatever it looks like. May be null.
  const std::vector<bool>* original_ops = nullptr;
  RankObserver* observer = nullptr;  // may be null
};

// The values that persistable variables have after a step, once what one step leaves to the next
// does not change any more: mostly one walk over the program, or two. After some walks, whatever a
// step writes is taken to be own to each rank.
class RankValues {
 public:
  // O(arguments) for each walk.
  static RankValues Of(const Program& program, const RankValuesOptions& options);

  // Of a program of which nothing is walked: nothing is written, and everything as it was.
  RankValues() = default;

  // By VarId.
  const RankValue& AtStart(VarId var) const {
    const auto found = start_.find(var);
    return found == start_.end() ? other_start_ : found->second;
  }
  const RankValue& AtEnd(VarId var) const { return end_.empty() ? Unwritten() : end_[var.value()]; }
  bool IsWritten(VarId var) const { return !is_written_.empty() && is_written_[var.value()]; }

 private:
  friend class RankInterpreter;
  static const RankValue& Unwritten() {
    static const RankValue* const unwritten = new RankValue();
    return *unwritten;
  }

  absl::flat_hash_map<VarId, RankValue> start_;
  RankValue other_start_;       // of all others
  std::vector<RankValue> end_;  // by VarId
  std::vector<bool> is_written_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_VALUES_H_
