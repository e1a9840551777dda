// The values of ops' outputs on ranks from those of their inputs.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_FUNCTIONS_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_FUNCTIONS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/training/gradient_names.h"
#include "ops/analysis/training/loss_gradients.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/constant_factors.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/op_operations.h"
#include "ops/analysis/values/rank_expressions.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/analysis/values/rank_values.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/analysis/values/sum_losses.h"
#include "ops/analysis/values/sums_by_hand.h"
#include "ops/analysis/values/undone_moves.h"
#include "ops/schema/communication_ops.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

class RankFunctions {
 public:
  // `memory` tells which variable a gradient belongs to. `operations` may be null if no expressions
  // are made. Adds updates and scales to `events`.
  RankFunctions(const ProgramFacts& facts, const RankValuesOptions& options,
                const RankMemory& memory, RankExpressions* expressions, OpOperations* operations,
                RankEvents* events)
      : program_(facts.program()),
        options_(options),
        memory_(memory),
        gradient_names_(program_, GradSuffix::kFirst),
        loss_gradients_(program_),
        reduces_for_all_(facts.Get(FindReducesForAll)),
        sums_(SumsOf(facts, options)),
        sums_are_wanted_(options.setting.reduction == Setting::Reduction::kSum ||
                         (sums_.are_all && sums_.gradients.empty())),
        expressions_(*expressions),
        operations_(operations),
        events_(*events),
        undone_moves_(memory),
        constant_factors_(program_, facts.Get<SignatureTable>(),
                          options.IsOneRank() ? 1 : options.setting.nranks) {
    FindOwners();
  }

  void StartWalk() { runs_.clear(); }
  const SumLosses& sums() const { return sums_; }

  // One value for each output, in order, of an op that every rank computes for itself; from one for
  // each input and, if the op keeps outputs, each output. Valid until the next call. O(arguments).
  absl::Span<const RankValue> Of(const Op& op, const SignatureFacts& facts,
                                 absl::Span<const RankValue> ins);
  RankValue AfterCollective(const Op& op, const CollectiveOp& collective, const RankValue& in);
  // What an all-to-all gives each rank of a value that all ranks have, or that each drew.
  RankValue PartsOfRanks(const RankValue& in);
  // `yes` if `condition` holds, else `no`.
  RankValue Select(const RankValue& condition, const RankValue& yes, const RankValue& no);
  // RankValue::rows of what `operation` makes of `ins`; invalid if they have the rows that their
  // ops make.
  ExprId RowsMadeOf(absl::string_view operation, absl::Span<const RankValue> ins);

 private:
  // Parameters that ranks average are no sums.
  static SumLosses SumsOf(const ProgramFacts& program, const RankValuesOptions& options) {
    const bool may_have_any = options.batch != nullptr && options.batch->own_updates().empty() &&
                              options.setting.reduction == Setting::Reduction::kByLoss;
    return may_have_any ? FindSumLosses(program, *options.batch) : SumLosses();
  }
  // From ins_ to outs_.
  void Transfer(const Op& op, const SignatureFacts& facts);
  void CountGradientsOfSums(const Op& op);
  void KeepRowsOfZeros(RankValue* out);
  bool FillsFixedShape(const Op& op);
  bool HoldsIntegers(const Op& op) const;
  bool HoldsRows(const Op& op, size_t arg) const;
  ExprId RowsOf(const RankValue& in);
  // Sets the rows of `out`, an output of an op on ins_.
  void SetRows(const Op& op, const SignatureFacts& facts, RankValue* out);
  bool MovesOneElement(const Op& op) const;
  bool ChoosesNoGradient(const Op& op, const SignatureFacts& facts) const;
  bool AddsUpStack(const Op& op);
  bool HoldsDeclaredDims(Symbol name);
  RankValue AddOrSubtract(const Op& op, const SignatureFacts& facts);
  RankValue Cast(const Op& op);
  void CastIntegers(const Op& op, const SignatureFacts& facts);
  RankValue PerRank(const Op& op, const SignatureFacts& facts);
  bool SplitGathered(const Op& op);
  bool StackGathered(const Op& op);
  bool ReduceGathered(const Op& op);
  bool TakesPartOfFirst(const Op& op) const;
  RankValue PartialSum(const Op& op, const SignatureFacts& facts);
  RankValue Added(const Op& op, const RankValue& partial);
  bool KeepsPartialSums(const Op& op, const SignatureFacts& facts);
  // Of ops that scale lists of gradients, by tensor. In rank_loss_scales.cc.
  void ScaleLosses(const Op& op, const SignatureFacts& facts);
  void Unscale(const Op& op, const std::vector<RankValue>& ins);
  void UpdateLossScale(const Op& op, const std::vector<RankValue>& ins);
  ExprId AnyNotFinite(absl::Span<const RankValue> values);
  bool BecomesEqual(const RankValue& found, const RankValue& tensor);
  // `out` with `yes` where `condition` holds, else `no`.
  RankValue Chosen(const RankValue& condition, const RankValue& yes, const RankValue& no,
                   RankValue out);
  RankValue Together(const RankValue& of, absl::Span<const RankValue> values);
  bool AreSeveral(const RankValue& a, const RankValue& b);
  RankValue SelectOfSeveral(const RankValue& condition, const RankValue& yes, const RankValue& no);
  // Of an op on values that hold several: value by value.
  void OfSeveral(const Op& op, const SignatureFacts& facts);
  int64_t ElementsOfOwner(const ExpressionTable::Layout& layout) const;
  void FindOwners();
  // Whether each shard that the op reads is one whole tensor on each rank.
  bool AreTensorsOfOwners(const Op& op) const;
  // The layout of the values that the op works on one by one; none: it does not.
  absl::optional<ExpressionTable::Layout> LayoutOfOperands(const Op& op,
                                                           const SignatureFacts& facts);
  void Apply(const Op& op, const SignatureFacts& facts);
  // The same of an optimizer that multiplies its gradients: it reads the multiples.
  void ApplyToRescaled(const Op& op, const SignatureFacts& facts);
  // The gradients of products with constants are multiples of the gradient.
  void FoldConstants(const Op& op);
  void SetRowSums(const Op& op);
  void MakeOpaqueParts(const Op& op);
  void FindSummed(const Op& op, const SignatureFacts& facts);
  void Update(const Op& op, const SignatureFacts& facts);
  // Whether operands are the values that ranks hold, or the shards of these.
  enum class Operands { kWhole, kShards };
  // The multiple of all operands is that of the outputs (`is_homogeneous`): the factor of the first
  // one is that of the outputs, and the others are relative to it.
  void ApplyExpressions(const Op& op, const SignatureFacts& facts, bool is_homogeneous,
                        Operands operands);
  void PutBack(const Op& op, const SignatureFacts& facts, ExprId first);
  void CastMaster(const Op& op, const SignatureFacts& facts);
  // w for "w@GRAD" or "w@GRAD@RENAME@block0@1"; invalid if there is none.
  VarId ForwardOf(Symbol gradient);
  void SetAll(const RankValue& value);
  ExpressionTable& table() { return *expressions_.table(); }

  // The sum of ins[i] times factors[i]; a multiple. In rank_sums.cc.
  RankValue Sum(const Op& op, absl::Span<const RankValue> ins, absl::Span<const double> factors);
  void SetRowsOfSum(const Op& op, absl::Span<const RankValue> ins, absl::Span<const double> factors,
                    RankValue* out);
  RankValue Multiple(const Op& op, const ConstantFactors::Factor& factor);
  bool ScalesLossGrad(const Op& op, const RankValue& value);
  bool AreAllRanks(absl::Span<const RankValue> ins) const;
  // RankValue::drawn_by of a function of `ins`.
  static OpId DrawOf(absl::Span<const RankValue> ins);

  // In rank_collectives.cc.
  RankValue SumOverRanks(const Op& op, const RankValue& in);
  RankValue MeanOverRanks(const Op& op, const RankValue& in);
  // Whether the sum over ranks does. A replicated value is no gradient to be summed.
  bool CountsAsMean(const RankValue& in) const {
    return sums_are_wanted_ && in.reductions == 0 && in.placement == RankValue::Placement::kLocal;
  }

  const Program& program_;
  const RankValuesOptions& options_;
  const RankMemory& memory_;
  GradientNames gradient_names_;
  LossGradients loss_gradients_;
  const absl::flat_hash_set<OpId>& reduces_for_all_;
  const SumLosses sums_;
  const bool sums_are_wanted_;
  RankExpressions& expressions_;
  OpOperations* const operations_;
  RankEvents& events_;

  UndoneMoves undone_moves_;
  ConstantFactors constant_factors_;

  // By the elements of shares of the setting: whether all of these are whole tensors of owners.
  absl::flat_hash_map<int64_t, bool> have_owners_;
  absl::flat_hash_map<Symbol, int> num_writers_;  // empty: not counted yet

  absl::Span<const RankValue> ins_;
  std::vector<RankValue> outs_;
  std::vector<ExprId> operands_;
  absl::flat_hash_map<OperationId, int> runs_;  // of random ops
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_FUNCTIONS_H_
