// What one variable holds when many ranks run a program: see rank_values.h.
#ifndef WEFT_OPS_ANALYSIS_RANK_VALUE_H_
#define WEFT_OPS_ANALYSIS_RANK_VALUE_H_

#include <cstdint>
#include <string>

#include "ops/analysis/expressions.h"
#include "proto/program.h"

namespace weft {

struct RankValue {
  enum class Placement : uint8_t {
    kReplicated,     // the same on all ranks
    kLocal,          // each rank has its own
    kShard,          // rank r has part r of n equal parts
    kGathered,       // on all ranks: the ranks' own values, one after the other
    kFromSomeRanks,  // on all ranks: the value of one rank, or something made of the values of a
                     // few
  };
  Placement placement = Placement::kReplicated;
  // Of values that are not replicated: linear in the gradient of the loss.
  bool is_gradient = false;
  // Of gradients: summed over the samples, as those of parameters are, so that their mean over the
  // ranks is what one device computes. Gradients of activations have a row for each sample.
  bool is_summed = false;
  // A mean over ranks of what was own to each, made of one by addition, or, on a condition, one:
  // parameters under LocalSGD.
  bool averaged_across_ranks = false;
  // Zero everywhere.
  bool is_zero = false;
  // Adds values of which some are divided by the number of ranks, or reduced, and some are not.
  bool is_mixed = false;
  // Made, at some time, of what is_mixed, or by the op `unscaled_in`, or of what nobody knows: not
  // in proportion to its power any more. Updates do not mend that.
  bool has_unknown_scale = false;
  // Collectives that it went through since it was a rank's own.
  uint8_t reductions = 0;
  // Sums over ranks, less divisions by the number of ranks, that it went through.
  int8_t unscaled_sums = 0;
  int32_t rank = -1;  // of kFromSomeRanks; -1: several
  OpId gathered_by;   // of kFromSomeRanks: the op that took the ranks' values apart
  // The op that made what is not linear out of a gradient; invalid: none did.
  OpId first_nonlinear_op;
  // The op, not linear either, that took it while it was not divided as often as summed.
  OpId unscaled_in;
  // The value is `factor` times `expr`, which is what one device computes. Only where expressions
  // are asked for.
  double factor = 1;
  // Of a sum of what is the same on all ranks and what is not: the factor of the latter, which the
  // whole has to have once it is carried on from step to step. 0: `factor`.
  double local_factor = 0;
  ExprId expr;
  uint32_t terms = 0;  // of RankExpressions

  // One sum over ranks more, or one division by their number (-1).
  void ChangeUnscaledSums(int by);

  bool IsEqualOnRanks() const {
    return placement != Placement::kLocal && placement != Placement::kShard;
  }
};

// "rank-local", "equal on all ranks", ...
std::string ToString(RankValue::Placement placement);
// Where something is that is made of values in two places, each part of it of one or the other.
RankValue::Placement JoinPlacements(RankValue::Placement a, RankValue::Placement b);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_VALUE_H_
