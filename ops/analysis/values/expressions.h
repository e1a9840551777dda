// Hash-consed expressions over the inputs of a step. Programs can share a table.
//
// Values of two programs are equal if they are one expression, whatever their names. Sums have a
// normal form, so that equality is up to re-association, commutation and common factors of sums.
#ifndef WEFT_OPS_ANALYSIS_VALUES_EXPRESSIONS_H_
#define WEFT_OPS_ANALYSIS_VALUES_EXPRESSIONS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/strong_id.h"

namespace weft {

// One output of an operation on expressions.
using ExprId = StrongId<struct ExprTag>;
// An operation without its operands: an op type with its attributes, or a word such as "sum".
using OperationId = StrongId<struct OperationTag>;

// Whether two factors are equal up to a few units in the last place of single precision, in which
// attributes hold them. What is left of a state in every step grows with the steps.
inline bool SameFactor(double a, double b) {
  return std::abs(a - b) <= 4 * std::numeric_limits<float>::epsilon() * std::abs(b);
}

// The fraction of small numbers that an attribute stands for, such as 1/3 for 0.33333334f, so that
// rounding does not add up over ops; `factor` itself where there is none.
double ExactFactor(float factor);

class ExpressionTable {
 public:
  struct Term {
    ExprId expr;
    double factor = 1;
  };

  // What distinguishes operations of one label in messages, such as attributes: text by name.
  using Details = std::map<std::string, std::string>;
  using DetailsOf = Details (*)(absl::string_view identity);

  ExpressionTable();

  // The operation that `identity` (any bytes) describes. `label` and, if not null, `details` are
  // for messages. O(length).
  OperationId Operation(absl::string_view identity, absl::string_view label,
                        DetailsOf details = nullptr);
  absl::string_view IdentityOf(OperationId operation) const {
    return *operations_[operation.value()].identity;
  }

  // Output 0 of an operation on operands; its other outputs follow. All calls for an operation have
  // one `num_outputs`. O(operands).
  ExprId Call(OperationId operation, absl::Span<const ExprId> operands, uint32_t num_outputs = 1);
  static ExprId Output(ExprId first, uint32_t i) { return ExprId(first.value() + i); }

  // The value of a variable at the start of a step.
  ExprId Initial(absl::string_view variable);
  // `factor` times `expr`; `expr` itself if the factor is 1. A multiple of a multiple is one
  // multiple.
  ExprId Scaled(ExprId expr, double factor);
  // What `expr` is a multiple of, and its factor; `expr` itself and 1 if it is none.
  Term Unscaled(ExprId expr) const;
  // Sorts and merges the terms, and expands those that are sums or multiples; sets *factor to their
  // common factor. Returns Zero(), with *factor 0, if all terms cancel. Factors are equal by
  // SameFactor. O(terms log terms).
  ExprId Sum(std::vector<Term>* terms, double* factor);
  bool IsSum(ExprId expr) const { return KindOf(expr) == OperationKind::kSum; }
  ExprId Zero() const { return zero_; }
  // The mean of a value over the ranks, if one device does not compute it.
  ExprId MeanOverRanks(ExprId expr) { return Call(mean_, {expr}); }
  bool IsMeanOverRanks(ExprId expr) const { return OperationOf(expr) == mean_; }
  // The mean of a value over each group of so many ranks.
  ExprId MeanOverGroups(ExprId expr, int size);
  bool IsMeanOverGroups(ExprId expr) const { return group_means_.contains(OperationOf(expr)); }
  // `expr` with the operand of a mean in place of the mean, also in each term of a sum. Sets
  // *factor to the common factor.
  ExprId WithoutMeans(ExprId expr, double* factor);
  // The same, and without branches of which one is a mean, and the other what it is the mean of.
  ExprId WithoutMeansOrBranches(ExprId expr, double* factor);
  // `yes` if `condition` holds, else `no`. Select(not c, a, b) is Select(c, b, a).
  ExprId Select(ExprId condition, ExprId yes, ExprId no);
  // `negation` holds where `condition` does not.
  void NoteNegation(ExprId negation, ExprId condition) { negated_.emplace(negation, condition); }
  // The condition that no negation is noted of. Flips *holds once for each negation on the way.
  ExprId WithoutNegations(ExprId condition, bool* holds) const;
  // What `expr` is where `condition` holds, or does not: branches on that condition have chosen.
  ExprId Given(ExprId condition, bool holds, ExprId expr) const;
  bool IsSelect(ExprId expr) const { return OperationOf(expr) == select_; }
  // From here on, Select of the operands of `select` is `value`.
  void TakeAs(ExprId select, ExprId value) { taken_as_.emplace(select, value); }
  // The dims of tensors that lie one after the other in a buffer.
  using Layout = std::vector<std::vector<int64_t>>;
  // Several values in one: as the elements of a buffer that holds them one after the other, or,
  // with an empty layout, values that are always equal.
  ExprId Several(const Layout& layout, absl::Span<const ExprId> values);
  // The values; empty for any other expression.
  absl::Span<const ExprId> ValuesOf(ExprId expr) const {
    return layouts_.contains(OperationOf(expr)) ? Operands(expr) : absl::Span<const ExprId>();
  }
  // Of an operation of Several.
  const Layout& LayoutOf(OperationId operation) const { return layouts_.at(operation); }
  // Whether these are always equal.
  bool AreCommon(ExprId expr) const { return OperationOf(expr) == common_; }
  // `expr` in the element type of that name.
  ExprId Cast(ExprId expr, absl::string_view dtype);
  bool IsCast(ExprId expr) const { return KindOf(expr) == OperationKind::kCast; }

  // The operation stands for several that could be equal: different calls may have equal values.
  void SetOpaque(OperationId operation) { operations_[operation.value()].is_opaque = true; }

  // The smallest parts in which two expressions differ, as text. Operations with one label show the
  // details that differ: "fill_constant{value=2.0}".
  struct Difference {
    std::string a, b;
    // The part is opaque, or a sum with too many terms to expand: the values may be equal.
    bool may_be_equal = false;
  };
  Difference FindDifference(ExprId a, ExprId b) const;
  // "sgd.0(w, mul_grad.1(...), lr)", down to `depth`.
  std::string ToString(ExprId expr, int depth = 3) const { return ToString(expr, "", depth); }
  absl::Span<const ExprId> Operands(ExprId expr) const;
  OperationId OperationOf(ExprId expr) const { return calls_[CallOf(expr)].operation; }

 private:
  struct CallRecord {
    OperationId operation;
    uint32_t first_operand;
    uint32_t num_operands;
    ExprId first_output;
  };
  uint32_t CallOf(ExprId expr) const { return call_of_[expr.value()]; }
  absl::Span<const ExprId> OperandsOf(const CallRecord& call) const {
    return {operands_.data() + call.first_operand, call.num_operands};
  }
  enum class OperationKind : uint8_t { kOther, kSum, kCast, kScaled };
  struct OperationRecord {
    std::string label;
    const std::string* identity;
    DetailsOf details;
    OperationKind kind = OperationKind::kOther;
    bool is_opaque = false;
  };
  OperationKind KindOf(const CallRecord& call) const {
    return operations_[call.operation.value()].kind;
  }
  OperationKind KindOf(ExprId expr) const { return KindOf(calls_[CallOf(expr)]); }
  OperationId OperationOfKind(OperationKind kind, absl::string_view identity,
                              absl::string_view label);
  absl::string_view LabelOf(const CallRecord& call) const {
    return operations_[call.operation.value()].label;
  }
  // With `details` after the outermost label.
  std::string ToString(ExprId expr, absl::string_view details, int depth) const;
  // The details in which two operations differ: "{name=value}", or "" if none are known.
  Difference FindDetails(OperationId a, OperationId b) const;
  void Grow();
  // The factor that stands for all that are equal to it.
  double Representative(double factor);
  // The factors of a sum, one per operand; empty if all are 1.
  const std::vector<double>& FactorsOf(OperationId operation) const;
  void Expand(const Term& term, std::vector<Term>* out) const;
  bool IsOpaque(ExprId expr) const;

  absl::node_hash_map<std::string, OperationId> operation_of_;
  std::vector<OperationRecord> operations_;
  absl::flat_hash_map<uint32_t, std::vector<double>> factors_;  // by operation: sums, multiples
  std::set<double> representatives_ = {-1, 1};
  std::vector<CallRecord> calls_;
  std::vector<ExprId> operands_;
  std::vector<uint32_t> call_of_;  // by expression
  // Open addressing: calls, plus one; 0 is free. A power of two, at most half full.
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> hashes_;  // by call
  OperationId sum_, mean_, select_, common_;
  absl::flat_hash_map<OperationId, Layout> layouts_;  // of Several
  absl::flat_hash_set<OperationId> group_means_;
  absl::flat_hash_map<ExprId, ExprId> negated_;   // by negation
  absl::flat_hash_map<ExprId, ExprId> taken_as_;  // by Select
  ExprId zero_;
};

// Visits expressions and their operands, transitively, each once:
//
//   ExpressionWalk walk(table);
//   walk.Add(expr);
//   while (!walk.done()) Use(walk.Next());
class ExpressionWalk {
 public:
  // `table` must outlive the walk.
  explicit ExpressionWalk(const ExpressionTable& table) : table_(table) {}

  // Also visits `expr`, unless the walk has visited it. Allowed at any time.
  void Add(ExprId expr) {
    if (seen_.insert(expr).second) todo_.push_back(expr);
  }
  bool done() const { return todo_.empty(); }
  ExprId Next() {
    const ExprId expr = todo_.back();
    todo_.pop_back();
    for (ExprId operand : table_.Operands(expr)) Add(operand);
    return expr;
  }

 private:
  const ExpressionTable& table_;
  absl::flat_hash_set<ExprId> seen_;
  std::vector<ExprId> todo_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_EXPRESSIONS_H_
