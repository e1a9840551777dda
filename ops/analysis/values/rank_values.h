// The values of a program's variables when many ranks run it, compared with what one device would
// compute.
//
// Abstract interpretation walks the program in order. It tracks the placement of every value, and
// what the value would be on one device that gets the batches of all ranks. Data parallel training
// rests on one fact: a gradient is linear in the gradient of the loss, which is a mean over
// samples, so that the mean of the ranks' gradients is the gradient of all samples. Functions
// linear in a gradient preserve that property; others (clipping, a norm, an optimizer) must follow
// the mean.
//
// A loss that is a sum over samples counts as the n-th part of such a mean, so that its gradient
// begins with a division by the number of ranks that no op makes (sum_gradients). A sum over the
// ranks completes it, an average divides once too often, and it may be added to the gradient of a
// mean only if that has been divided, too.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_VALUES_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_VALUES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/expressions.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

class BatchFlow;

// The value of a variable.
struct RankValue {
  enum class Placement : uint8_t {
    kReplicated,  // equal on all ranks
    kLocal,       // no known relation between ranks
    kShard,       // rank r has part r of n equal parts
    kParts,       // rank r has part r of n equal parts of the values of all ranks, in rank order
    kPartialSum,  // what the ranks have adds up to the value
    kPartialMax,  // the largest of what the ranks have is the value
    kGathered,    // on all ranks: the values of all ranks, in rank order
    kRankSubset,  // on all ranks: the value of one rank, or a function of values of a few
  };
  Placement placement = Placement::kReplicated;
  // Not replicated, and linear in the gradient of the loss.
  bool is_gradient = false;
  // A gradient that is summed over the samples, as those of parameters are: its mean over the ranks
  // is what one device computes. Gradients of activations have a row for each sample.
  bool is_summed = false;
  // A mean over ranks of rank-local values, a sum, product or quotient with such a mean, or a
  // selection of one: parameters under LocalSGD.
  bool averaged_across_ranks = false;
  // Zero everywhere.
  bool is_zero = false;
  // Adds values that are divided by the number of ranks, or reduced, to others that are not.
  bool is_mixed = false;
  // Depends on a value that is_mixed, on the op `unscaled_in`, or on an unknown value: no longer in
  // proportion to its unscaled sums. Updates do not reset it.
  bool has_unknown_scale = false;
  // Of a rank-local gradient: equal on all ranks unless one of them has found an element that is
  // not finite (check_finite_and_unscale of shares).
  bool is_equal_if_finite = false;
  // SelectedRows, each row at most once.
  bool has_merged_rows = false;
  // Samples that all ranks have gathered from each other, in rank order; the gradient of such.
  bool has_samples_of_ranks = false, is_gradient_of_samples = false;
  // Of SelectedRows whose rows are neither merged nor as the op of `expr` makes them: how they are.
  ExprId rows;
  // The number of collectives since the value was rank-local.
  uint8_t reductions = 0;
  // Sums over ranks minus divisions by their number.
  int8_t unscaled_sums = 0;
  // Of kRankSubset; -1: several. Of kGathered: kEqual if all ranks have given the same.
  int32_t rank = -1;
  static constexpr int32_t kEqual = -2;
  // Of kRankSubset, and of what is equal on all ranks and has been gathered nevertheless: the op
  // that split the gathered values. The value is that of `rank`.
  OpId gathered_by;
  // Of a value that differs between ranks only because ops draw: the first of these ops. Invalid:
  // the value is equal on all ranks, or depends on what they are fed.
  OpId drawn_by;
  // The op that made a nonlinear function of a gradient; invalid: none.
  OpId first_nonlinear_op;
  // The nonlinear op that read the value while its sums were unscaled.
  OpId unscaled_in;
  // The value is `factor` times `expr`, which is what one device computes. Only if expressions are
  // made.
  double factor = 1;
  // For a sum of replicated and rank-local values: the factor of the latter, which is that of the
  // whole once a step carries it to the next. 0: `factor`.
  double local_factor = 0;
  ExprId expr;
  uint32_t terms = 0;  // of RankExpressions

  // Counts one more sum over ranks, or a division by their number (-1).
  void ChangeUnscaledSums(int by);
  // Takes over the defects and reductions of `in`, an operand of this value.
  void Inherit(const RankValue& in);

  // Says nothing about one device, which may have another value: see IsOfSomeRanks.
  bool IsEqualOnRanks() const {
    return placement != Placement::kLocal && placement != Placement::kShard &&
           placement != Placement::kParts && placement != Placement::kPartialSum &&
           placement != Placement::kPartialMax;
  }
  // Equal on all ranks, but no value of one device: that of some ranks, or those of all of them.
  bool IsOfSomeRanks() const {
    return placement == Placement::kRankSubset || placement == Placement::kGathered;
  }
};

// The expression of the value that all ranks hold, or that each of them holds: `value.expr`, marked
// by its placement if that is not what one device has.
ExprId PlacedExpr(const RankValue& value, ExpressionTable* table);

// What a rank gives to all of the variable when training begins, in the programs of other ranks.
ExprId ValueOfRank(int rank, absl::string_view variable, ExpressionTable* table);

// "rank-local", "equal on all ranks", ...
std::string ToString(RankValue::Placement placement);
// The placement of a value each part of which has one of two placements.
RankValue::Placement JoinPlacements(RankValue::Placement a, RankValue::Placement b);

// An update by an op with slots Param and Grad, of one of its parameters.
struct RankUpdate {
  OpId op;
  uint32_t index;  // in slots Param and Grad
  RankValue param, grad;

  bool IsEqualOnRanks() const { return param.IsEqualOnRanks() && grad.IsEqualOnRanks(); }
};

// A condition of a branch. Or, without a variable, an op whose block the walk does not follow: that
// of a loop.
struct RankCondition {
  OpId op;
  Symbol variable;
  RankValue value;
};

// What a collective exchanges of a variable, or of a member of a fused buffer.
struct RankExchange {
  OpId op;
  RankValue value;
};

// An op that multiplies by a constant; whether that divides by the number of ranks.
struct RankScale {
  OpId op;
  bool divides;
};

// What a fetch op of the root block hands out.
struct RankFetch {
  OpId op;
  VarId variable;
  RankValue value;
  bool has_expr = false;  // not before RankValuesOptions::first_expression
};

// What the last walk over a program has met, each in op order.
struct RankEvents {
  std::vector<RankUpdate> updates;
  std::vector<RankCondition> conditions;
  std::vector<RankExchange> exchanges;
  std::vector<RankScale> scales;
  std::vector<RankFetch> fetches;
};

// What a startup program leaves in persistable variables, by name.
using StartupValues = absl::flat_hash_map<std::string, RankValue>;

struct RankValuesOptions {
  // Of the run: nranks (none: results hold for any number), the rank whose program it is (none:
  // that of all ranks), distributed_params, shares and common (what such a state holds when a step
  // begins), feeds (data that is whole is equal on all ranks; any
  // other is the rank's own), reduction (kSum: the first sum over ranks of a value counts as a
  // mean; kByLoss: for losses that are sums by `batch`), and gradients_are_rounded. The rest is
  // ignored.
  Setting setting;
  // The ranks of the run whose values these are, ascending; empty: all. If given, nranks is their
  // number, and only collectives on rings of these ranks (kGroupRanksAttr) count as such. What
  // collectives on other rings leave is unknown, and differs between ranks.
  std::vector<int> group;
  // The program is for one device: nothing is rank-local, collectives are ordinary functions.
  bool is_one_device = false;
  // A startup program: it starts without values.
  bool is_startup = false;
  // Values after the startup program, by name; null: persistable variables are equal on all ranks.
  const StartupValues* start = nullptr;
  // Of the program. Tells which losses are sums, and which forward values become those of one
  // device in an op (ForwardReduction): such an op counts as a copy, times a power of the number of
  // ranks, unless the value is a gradient. This holds where ranks make equal updates; if they do
  // not, or of a group, no op counts as one. Null: nothing is known of the batch.
  const BatchFlow* batch = nullptr;
  // Where expressions go; null: none are made, which is much faster.
  ExpressionTable* table = nullptr;
  // The position in the root block of the first op with expressions: the value of a variable before
  // it is Initial(name), with the factor of its unscaled sums, or, if that is unknown, a separate
  // expression. With is_one_device the walk skips earlier ops.
  size_t first_expression = 0;
  // By OpId: ops of the program before the rewrite, which never divide by the number of ranks. May
  // be null.
  const std::vector<bool>* original_ops = nullptr;
  // Compares the programs of several ranks: what a collective gives to all ranks is an expression
  // of its own, whatever they gave.
  bool names_exchanges = false;

  // Nothing can differ between ranks.
  bool IsOneRank() const { return is_one_device || setting.nranks == 1; }
  bool IsWhole(absl::string_view data) const {
    const auto found = setting.feeds.find(std::string(data));
    return found != setting.feeds.end() && !found->second.axis.has_value();
  }
  bool HasRanks(double n) const { return setting.nranks.has_value() && *setting.nranks == n; }
  // The number of ranks to calculate with. If it is unknown, what holds for this one holds for any:
  // no product of its powers with factors of a program is 1 by chance.
  double RankFactor() const {
    return setting.nranks.has_value() ? *setting.nranks : 7.38905609893065;
  }
};

// The values of variables before and after a step, at the fixpoint over steps: mostly after one
// walk over the program, or two. States that many walks change count as rank-local.
class RankValues {
 public:
  // O(arguments) for each walk.
  static RankValues Of(const ProgramFacts& program, const RankValuesOptions& options);

  // Of a program without ops.
  RankValues() = default;

  // By VarId.
  RankValue AtStart(VarId var) const {
    const auto carried = carried_.find(var);
    if (carried != carried_.end()) return carried->second;
    RankValue value;
    if (!first_placements_.empty()) value.placement = first_placements_[var.value()];
    return value;
  }
  const RankValue& AtEnd(VarId var) const { return end_.empty() ? Unwritten() : end_[var.value()]; }
  bool IsWritten(VarId var) const { return !is_written_.empty() && is_written_[var.value()]; }
  const RankEvents& events() const { return events_; }
  // The gradients that count as n-th parts, because no op divides them (SumLosses::gradients).
  const std::set<std::string>& sum_gradients() const { return sum_gradients_; }

 private:
  friend class RankInterpreter;
  static const RankValue& Unwritten() {
    static const RankValue* const unwritten = new RankValue();
    return *unwritten;
  }

  // At the start of the first step, by VarId; and of variables that earlier steps changed.
  std::vector<RankValue::Placement> first_placements_;
  absl::flat_hash_map<VarId, RankValue> carried_;
  std::vector<RankValue> end_;  // by VarId
  std::vector<bool> is_written_;
  RankEvents events_;
  std::set<std::string> sum_gradients_;
};

// The values of the persistable variables that the startup program writes; others end with it.
// `options`: as for RankValues::Of of the main program; start, is_startup, and batch, which is
// about that, are ignored. O(arguments).
StartupValues ReadStartupValues(const ProgramFacts& startup, RankValuesOptions options);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_VALUES_H_
