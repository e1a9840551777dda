#include "ops/analysis/core/block_periods.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Conditions of the root block as the ops passed so far compute them.
class Conditions {
 public:
  explicit Conditions(const Program& program)
      : program_(program), writer_(program.symbols().size()) {}

  void Pass(const Op& op) {
    for (Symbol out : op.output_args()) writer_[out.value()] = op.id();
  }

  // The condition holds in every k-th step: k; 0: unknown. Follows one logical_and at most, so that
  // the recursion ends.
  int64_t PeriodOf(Symbol condition, bool may_be_joined = true) const {
    const absl::optional<Op> op = WriterOf(condition);
    if (!op.has_value()) return 0;
    const absl::Span<const Symbol> x = op->Input("X"), y = op->Input("Y");
    if (x.size() != 1 || y.size() != 1) return 0;
    const Algebra algebra = Of(*op);
    if (algebra == Algebra::kAnd && may_be_joined) {
      const int64_t first = PeriodOf(x[0], false), second = PeriodOf(y[0], false);
      return first == 1 || second == 1 ? first * second : 0;
    }
    if (algebra == Algebra::kGreaterEqual) {
      return IsStepCounter(x[0]) && ConstantOf(y[0]).has_value() ? 1 : 0;
    }
    if (algebra != Algebra::kEqual) return 0;
    const int64_t of_x = PeriodOfRest(x[0], ConstantOf(y[0]));
    return of_x > 0 ? of_x : PeriodOfRest(y[0], ConstantOf(x[0]));
  }

 private:
  static Algebra Of(const Op& op) { return AlgebraOf(op, FindOpSchema(op.type())); }

  absl::optional<Op> WriterOf(Symbol variable) const {
    const OpId id = writer_[variable.value()];
    if (!id.valid()) return absl::nullopt;
    return program_.op(id);
  }

  // k if the value is step % k, which is `phase` in every k-th step; else 0.
  int64_t PeriodOfRest(Symbol rest, absl::optional<int64_t> phase) const {
    if (!phase.has_value() || *phase < 0) return 0;
    const int64_t k = ModulusOf(rest);
    return *phase < k ? k : 0;
  }

  // k if the value is step % k; else 0.
  int64_t ModulusOf(Symbol rest) const {
    const absl::optional<Op> op = WriterOf(rest);
    if (!op.has_value() || Of(*op) != Algebra::kModulo) return 0;
    const absl::Span<const Symbol> x = op->Input("X"), y = op->Input("Y");
    if (x.size() != 1 || y.size() != 1 || !IsStepCounter(x[0])) return 0;
    const int64_t k = ConstantOf(y[0]).value_or(0);
    return k > 0 ? k : 0;
  }

  bool IsStepCounter(Symbol variable) const {
    const VarId var = program_.block(0).FindVar(variable);
    const absl::optional<Op> op = WriterOf(variable);
    if (!var.valid() || !program_.var(var).persistable() || !op.has_value() ||
        Of(*op) != Algebra::kIncrement || op->Input("X") != op->Output("Out")) {
      return false;
    }
    return op->FloatAttr("step").value_or(1) == 1;
  }

  absl::optional<int64_t> ConstantOf(Symbol variable) const {
    const absl::optional<Op> op = WriterOf(variable);
    if (!op.has_value() || Of(*op) != Algebra::kConstant || !op->input_args().empty()) {
      return absl::nullopt;
    }
    const std::string text = op->StringAttr("str_value").value_or("");
    int64_t value;
    if (!text.empty()) {
      return absl::SimpleAtoi(text, &value) ? absl::optional<int64_t>(value) : absl::nullopt;
    }
    const absl::optional<double> number = op->FloatAttr("value");
    if (!number.has_value() || !(*number >= 0 && *number < 1e9)) return absl::nullopt;
    value = static_cast<int64_t>(*number);
    return static_cast<double>(value) == *number ? absl::optional<int64_t>(value) : absl::nullopt;
  }

  const Program& program_;
  std::vector<OpId> writer_;  // by symbol
};

}  // namespace

std::vector<int64_t> BlockPeriods(const Program& program) {
  std::vector<int64_t> periods(program.num_blocks(), 0);
  std::vector<bool> is_run(program.num_blocks(), false);
  periods[0] = 1;
  Conditions conditions(program);
  OpTraits traits(program);
  for (const Op& op : AllOps(program)) {
    for (int sub_block : op.SubBlocks()) {
      const absl::Span<const Symbol> condition = op.Input("Cond");
      const bool is_seen = op.block() == 0 && !is_run[sub_block] && condition.size() == 1 &&
                           traits.Has(op, Trait::kBranch);
      periods[sub_block] = is_seen ? conditions.PeriodOf(condition[0]) : 0;
      is_run[sub_block] = true;
    }
    if (op.block() == 0) conditions.Pass(op);
  }
  return periods;
}

}  // namespace weft
