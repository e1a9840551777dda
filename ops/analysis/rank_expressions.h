// The expressions of values on ranks: what RankValue::expr, factor, local_factor and terms become
// when values are combined. Without a table none are made: then AreMade() is false, Call, Opaque
// and SetMean leave expressions alone, and nothing else may be called.
#ifndef WEFT_OPS_ANALYSIS_RANK_EXPRESSIONS_H_
#define WEFT_OPS_ANALYSIS_RANK_EXPRESSIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/rank_value.h"

namespace weft {

class RankExpressions {
 public:
  explicit RankExpressions(ExpressionTable* table);  // null: none are made

  // Values of the walk before are forgotten. Expressions may be made later, from Begin on.
  void StartWalk(bool makes_them) {
    terms_.assign(1, {});
    table_ = makes_them ? all_ : nullptr;
  }
  void Begin() { table_ = all_; }
  bool AreMade() const { return table_ != nullptr; }
  ExpressionTable* table() { return table_; }

  // What an operation without operands makes, or that operation on operands.
  ExprId Named(const std::string& identity, const std::string& label,
               absl::Span<const ExprId> operands = {});
  ExprId Cast(ExprId expr, int dtype);
  // The expression of what all ranks hold, or each of them.
  ExprId Placed(const RankValue& value);
  ExprId Scaled(const RankValue& value) { return table_->Scaled(Placed(value), value.factor); }

  // `out` with an expression of its own: that operation on the values, called `label` (empty: as
  // the operation). Opaque: what is known of the values ends there.
  RankValue Call(RankValue out, absl::string_view operation, absl::Span<const RankValue> inputs,
                 absl::string_view label = "");
  RankValue Opaque(RankValue out, absl::string_view operation, absl::Span<const RankValue> inputs,
                   absl::string_view label = "");
  // The mean over ranks of `in`, which is own to each: it has a name of its own but for what has
  // the same mean on one device, term by term of a sum.
  void SetMean(const RankValue& in, RankValue* out);
  // The sum of `factors` times `ins`. With `keeps_terms`, a sum of what is the same on all ranks
  // and what is not remembers its terms.
  void SetSum(absl::Span<const RankValue> ins, absl::Span<const double> factors, bool keeps_terms,
              RankValue* out);
  // `yes` where `condition` holds, else `no`.
  void SetSelect(const RankValue& condition, const RankValue& yes, const RankValue& no,
                 RankValue* out);

 private:
  // A summand of a value that adds what is the same on all ranks to what is not.
  struct PlacedTerm {
    ExprId expr;
    double factor;
    bool is_same;
    bool is_summed;
  };

  void KeepTerms(absl::Span<const RankValue> ins, absl::Span<const double> factors, RankValue* out);

  ExpressionTable* const all_;
  ExpressionTable* table_;  // null where none are made
  OperationId gathered_, shard_;
  std::vector<std::vector<PlacedTerm>> terms_;  // by RankValue::terms; 0: none
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_EXPRESSIONS_H_
