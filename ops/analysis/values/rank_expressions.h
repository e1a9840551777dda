// Expressions of values on ranks: computes RankValue::expr, factor, local_factor and terms of
// combined values. Without a table, AreMade() is false, Call, Opaque and SetMean do not change
// expressions, and no other function may be called.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_EXPRESSIONS_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_EXPRESSIONS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"

namespace weft {

class RankExpressions {
 public:
  explicit RankExpressions(ExpressionTable* table);  // null: none are made

  // Discards the terms of earlier walks. Unless `makes_them`, Begin starts making expressions.
  void StartWalk(bool makes_them) {
    terms_.assign(1, {});
    table_ = makes_them ? all_ : nullptr;
  }
  void Begin() { table_ = all_; }
  bool AreMade() const { return table_ != nullptr; }
  ExpressionTable* table() const { return table_; }

  // Zero on all ranks.
  RankValue ZeroValue() const;
  // The operation on operands.
  ExprId Named(const std::string& identity, const std::string& label,
               absl::Span<const ExprId> operands = {});
  ExprId Cast(ExprId expr, int dtype);
  // The same from an element type. A floating-point value that is cast to a wider type and back is
  // the value, and so is a bool that is cast to any type and back; one whose first cast
  // `may_round`, from fp32 to half precision and back, too.
  ExprId Cast(ExprId expr, int from, int to, bool may_round);
  // `rows` holds the rows of the row-sparse `whole`, which has zeros elsewhere.
  void NoteRows(ExprId rows, ExprId whole) { whole_of_rows_[rows] = whole; }
  // What holds the same elements as the value but for zeros: what rows were taken of, if noted.
  ExprId UpToZeros(ExprId expr) const {
    const auto found = whole_of_rows_.find(expr);
    return found == whole_of_rows_.end() ? expr : found->second;
  }
  // The expression of the value that all ranks hold, or that each of them holds.
  ExprId Placed(const RankValue& value);
  ExprId Scaled(const RankValue& value) { return table_->Scaled(Placed(value), value.factor); }

  // `out` with that operation on the values as expression; an empty `label` stands for `operation`.
  // Opaque: an expression that may equal others.
  RankValue Call(RankValue out, absl::string_view operation, absl::Span<const RankValue> inputs,
                 absl::string_view label = "");
  RankValue Opaque(RankValue out, absl::string_view operation, absl::Span<const RankValue> inputs,
                   absl::string_view label = "");
  // The mean over ranks of the rank-local `in`: an expression MeanOverRanks, except for values, or
  // terms of a sum, that one device computes alike.
  void SetMean(const RankValue& in, RankValue* out);
  // The sum of `factors` times `ins`. With `keeps_terms`, a sum of replicated and rank-local values
  // keeps its terms.
  void SetSum(absl::Span<const RankValue> ins, absl::Span<const double> factors, bool keeps_terms,
              RankValue* out);
  // `yes` if `condition` holds, else `no`.
  void SetSelect(const RankValue& condition, RankValue yes, RankValue no, RankValue* out);
  // Sets the value to what it is where `condition` holds, or does not. Keeps one that is the same
  // either way, or chosen by another condition.
  void Choose(const RankValue& condition, bool holds, RankValue* value);

 private:
  // The mean over all ranks of means over groups of equally many is the mean of the values, also
  // where all ranks have either the values or these means.
  ExprId WithoutGroupMeans(ExprId expr) const;

  // A summand of a value that adds replicated to rank-local values.
  struct PlacedTerm {
    ExprId expr;
    double factor;
    bool is_same;
    bool is_summed;
  };

  void KeepTerms(absl::Span<const RankValue> ins, absl::Span<const double> factors, RankValue* out);
  bool IsOneCondition(const RankValue& condition);

  ExpressionTable* const all_;
  ExpressionTable* table_;  // null: none are made
  OperationId gathered_, shard_;
  // Of casts: what was cast, from which type, and whether casting back gives the value.
  struct Source {
    ExprId expr;
    int dtype;
    bool is_exact;
  };
  absl::flat_hash_map<ExprId, Source> cast_from_;
  absl::flat_hash_map<ExprId, ExprId> whole_of_rows_;
  std::vector<std::vector<PlacedTerm>> terms_;  // by RankValue::terms; 0: none
  // Where the values of conditions are; kRankSubset: one expression stands for several values.
  absl::flat_hash_map<ExprId, RankValue::Placement> placement_of_condition_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_EXPRESSIONS_H_
