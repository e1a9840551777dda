// Values as expressions over what a step is given, the same for all programs that share a table.
//
// Two values of two programs are equal, whatever they were called and wherever they were computed,
// if they are the same expression. Sums are kept in a normal form, so that equality is up to
// re-association, commutation and common factors of sums.
#ifndef WEFT_OPS_ANALYSIS_EXPRESSIONS_H_
#define WEFT_OPS_ANALYSIS_EXPRESSIONS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
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
// What an operation does, but for its operands: an op type with its attributes, or a word such as
// "sum". Equal numbers mean equal operations.
using OperationId = StrongId<struct OperationTag>;

// Whether two factors are the same number but for rounding: of 1/n in single precision, and what is
// made of it.
inline bool SameFactor(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

class ExpressionTable {
 public:
  struct Term {
    ExprId expr;
    double factor = 1;
  };

  // What operations of one label are told apart by in messages, such as attributes: text by name.
  using Details = std::map<std::string, std::string>;
  using DetailsOf = Details (*)(absl::string_view identity);

  ExpressionTable();

  // The operation that `identity` (any bytes) describes; `label` is what it is called in messages.
  // `details` is called for messages only; null: there are none. O(length).
  OperationId Operation(absl::string_view identity, absl::string_view label,
                        DetailsOf details = nullptr);
  absl::string_view IdentityOf(OperationId operation) const {
    return *operations_[operation.value()].identity;
  }

  // Output 0 of an operation on operands; its other outputs follow. `num_outputs` is the same in
  // all calls for an operation. O(operands).
  ExprId Call(OperationId operation, absl::Span<const ExprId> operands, uint32_t num_outputs = 1);
  static ExprId Output(ExprId first, uint32_t i) { return ExprId(first.value() + i); }

  // The value that a variable has when a step begins.
  ExprId Initial(absl::string_view variable);
  // `expr`, not equal to 1 times itself for any other factor. `expr` where the factor is 1.
  ExprId Scaled(ExprId expr, double factor);
  // Sorts and merges the terms, and expands those that are sums themselves; the common factor goes
  // to *factor, which is 0 where nothing is left of the sum, and the result Zero(). Factors count
  // as equal that differ by less than 1e-6 of their size. O(terms log terms).
  ExprId Sum(std::vector<Term>* terms, double* factor);
  ExprId Zero() const { return zero_; }
  // The mean of a value over the ranks, where it is not what one device computes.
  ExprId MeanOverRanks(ExprId expr) { return Call(mean_, {expr}); }
  bool IsMeanOverRanks(ExprId expr) const { return OperationOf(expr) == mean_; }
  // `expr` with what it is the mean of, or, for a sum, with what each of its terms is the mean of;
  // the common factor goes to *factor.
  ExprId WithoutMeans(ExprId expr, double* factor);
  // `yes` where `condition` holds, else `no`.
  ExprId Select(ExprId condition, ExprId yes, ExprId no) {
    return Call(select_, {condition, yes, no});
  }
  bool IsSelect(ExprId expr) const { return OperationOf(expr) == select_; }

  size_t size() const { return call_of_.size(); }

  // The operation stands for more than one could compute: what differs in it may be the same.
  void SetOpaque(OperationId operation) { operations_[operation.value()].is_opaque = true; }

  // The smallest part in which two expressions differ, as text: what `a` has, what `b` has. Of
  // operations with one label, with the details that differ: "fill_constant{value=2.0}".
  struct Difference {
    std::string a, b;
    // That part is opaque, or a sum of so many terms that it is not expanded: nobody has shown that
    // the values differ.
    bool may_be_equal = false;
  };
  Difference FindDifference(ExprId a, ExprId b) const;
  // "sgd.0(w, mul_grad.1(...), lr)", as deep as `depth`.
  std::string ToString(ExprId expr, int depth = 3) const { return ToString(expr, "", depth); }
  // The operands of the operation that makes it, and what it is called.
  absl::Span<const ExprId> Operands(ExprId expr) const;
  absl::string_view Label(ExprId expr) const;
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
  struct OperationRecord {
    std::string label;
    const std::string* identity;
    DetailsOf details;
    bool is_opaque = false;
  };
  absl::string_view LabelOf(const CallRecord& call) const {
    return operations_[call.operation.value()].label;
  }
  // With `details` behind the outermost label.
  std::string ToString(ExprId expr, absl::string_view details, int depth) const;
  // The details in which two operations differ: "{name=value}", or "" where none are known.
  Difference FindDetails(OperationId a, OperationId b) const;
  void Grow();
  // The factors of a sum, one per operand; empty where all are 1.
  const std::vector<double>& FactorsOf(OperationId operation) const;
  void Expand(const Term& term, std::vector<Term>* out) const;
  bool IsOpaque(ExprId expr) const;

  absl::node_hash_map<std::string, OperationId> operation_of_;
  std::vector<OperationRecord> operations_;
  absl::flat_hash_map<uint32_t, std::vector<double>> factors_;  // by operation, of sums
  std::vector<CallRecord> calls_;
  std::vector<ExprId> operands_;
  std::vector<uint32_t> call_of_;  // by expression
  // Open addressing: calls, plus one; 0 is free. A power of two, at most half full.
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> hashes_;  // by call
  OperationId sum_, mean_, select_;
  ExprId zero_;
};

// Visits expressions and all that they are made of, each once:
//
//   ExpressionWalk walk(table);
//   walk.Add(expr);
//   while (!walk.done()) Use(walk.Next());
class ExpressionWalk {
 public:
  // `table` must outlive the walk.
  explicit ExpressionWalk(const ExpressionTable& table) : table_(table) {}

  // Visits `expr`, too, unless the walk has met it. Allowed at any time.
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

#endif  // WEFT_OPS_ANALYSIS_EXPRESSIONS_H_
