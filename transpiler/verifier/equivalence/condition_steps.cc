#include "transpiler/verifier/equivalence/condition_steps.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

Algebra Of(const Op& op) { return AlgebraOf(op, FindOpSchema(op.type())); }

// Of type int64, so that doubles that are whole numbers represent it.
bool IsInteger(const Program& program, Symbol variable) {
  const VarId var = program.block(0).FindVar(variable);
  if (!var.valid()) return false;
  const absl::optional<TensorType> type = DeclaredType(program.var(var));
  return type.has_value() && type->dtype == DType::kInt64;
}

}  // namespace

void ConditionSteps::Add(OpId before, Symbol variable) {
  if (conditions_.count({before, variable}) > 0) return;
  FindWriters();
  const absl::optional<Comparison> comparison = ComparisonOf(before, variable);
  if (comparison.has_value()) {
    // One writer, so that its value is the same at all comparisons.
    std::unique_ptr<Scalar>& scalar = scalars_[{OpId(), comparison->scalar}];
    if (scalar == nullptr) {
      scalar = std::make_unique<Scalar>();
      scalar->before = comparison->op;
      scalar->variable = comparison->scalar;
    }
    if (!scalar->slice.has_value() || scalar->of_constant.count(comparison->constant) > 0) {
      scalar->of_constant[comparison->constant];
      conditions_[{before, variable}] = {scalar.get(), comparison->constant};
      return;
    }
  }
  std::unique_ptr<Scalar>& scalar = scalars_[{before, variable}];
  scalar = std::make_unique<Scalar>();
  scalar->before = before;
  scalar->variable = variable;
  scalar->of_truth.emplace();
  conditions_[{before, variable}] = {scalar.get(), absl::nullopt};
}

absl::StatusOr<const ConditionSteps::Steps*> ConditionSteps::Run(OpId before, Symbol variable,
                                                                 int horizon) {
  if (programs_.startup == nullptr) return absl::UnimplementedError("no startup program is given");
  const auto& [scalar, constant] = conditions_.at({before, variable});
  if (!scalar->slice.has_value()) {
    scalar->slice =
        ScalarSlice::Of(*programs_.main, *programs_.startup, scalar->before, scalar->variable);
  }
  if (!scalar->slice->ok()) return scalar->slice->status();
  WEFT_RETURN_IF_ERROR(Extend(scalar, horizon));
  Steps& steps = constant.has_value() ? scalar->of_constant.at(*constant) : *scalar->of_truth;
  steps.last = scalar->last;
  steps.failure = scalar->failure;
  return &steps;
}

absl::Status ConditionSteps::Extend(Scalar* scalar, int horizon) {
  const int64_t ops = static_cast<int64_t>((*scalar->slice)->num_ops());
  const int64_t steps = scalar->failure.ok() ? std::max(horizon - scalar->last, 0) : 0;
  if (steps > ops_left_ / std::max<int64_t>(ops, 1)) {
    return absl::UnimplementedError(
        absl::StrCat("it depends on ", ops, " ops, too many for ", horizon, " steps"));
  }
  ops_left_ -= steps * ops;
  while (scalar->last < horizon && scalar->failure.ok()) {
    const absl::StatusOr<double> value = (*scalar->slice)->RunStep();
    if (!value.ok()) {
      scalar->failure = value.status();
      break;
    }
    ++scalar->last;
    if (scalar->of_truth.has_value()) {
      if (*value != 0) scalar->of_truth->held.push_back(scalar->last);
      continue;
    }
    const auto found = scalar->of_constant.find(static_cast<int64_t>(*value));
    if (found != scalar->of_constant.end()) found->second.held.push_back(scalar->last);
  }
  return absl::OkStatus();
}

void ConditionSteps::FindWriters() {
  if (!position_.empty()) return;
  const Program& program = *programs_.main;
  position_.assign(program.op_id_limit() + 1, -1);
  num_writers_.assign(program.symbols().size(), 0);
  writer_.assign(program.symbols().size(), OpId());
  int position = 0;
  for (const Op& op : AllOps(program)) {
    if (op.block() == 0) position_[op.id().value()] = position++;
    for (Symbol out : op.output_args()) {
      ++num_writers_[out.value()];
      writer_[out.value()] = op.id();
    }
  }
}

OpId ConditionSteps::WriterBefore(OpId before, Symbol variable) const {
  const OpId writer = writer_[variable.value()];
  const bool is_sole = writer.valid() && num_writers_[variable.value()] == 1;
  if (!is_sole || position_[writer.value()] < 0) return OpId();
  return position_[writer.value()] < position_[before.value()] ? writer : OpId();
}

absl::optional<int64_t> ConditionSteps::ConstantBefore(OpId before, Symbol variable) const {
  const Program& program = *programs_.main;
  const OpId writer = WriterBefore(before, variable);
  if (!writer.valid() || !IsInteger(program, variable)) return absl::nullopt;
  const Op op = program.op(writer);
  const OpSchema* const schema = FindOpSchema(op.type());
  if (Of(op) != Algebra::kConstant || schema->FindAttr("value") == nullptr ||
      !op.input_args().empty()) {
    return absl::nullopt;
  }
  double number = op.FloatAttr("value").value_or(0);
  const std::string text = op.StringAttr("str_value").value_or("");
  if (!text.empty() && !absl::SimpleAtod(text, &number)) return absl::nullopt;
  constexpr double kLargest = 9007199254740992.0;
  if (std::trunc(number) != number || std::abs(number) > kLargest) return absl::nullopt;
  return static_cast<int64_t>(number);
}

absl::optional<ConditionSteps::Comparison> ConditionSteps::ComparisonOf(OpId before,
                                                                        Symbol condition) const {
  const Program& program = *programs_.main;
  const OpId writer = WriterBefore(before, condition);
  if (!writer.valid()) return absl::nullopt;
  const Op op = program.op(writer);
  if (Of(op) != Algebra::kEqual || op.output_args().size() != 1 || op.input_args().size() != 2 ||
      op.Input("X").size() != 1 || op.Input("Y").size() != 1) {
    return absl::nullopt;
  }
  const Symbol x = op.Input("X")[0], y = op.Input("Y")[0];
  const absl::optional<int64_t> constant = ConstantBefore(writer, y);
  const bool is_known = constant.has_value() && IsInteger(program, x) &&
                        WriterBefore(writer, x).valid() && program.name(x) != kEmptyVarName;
  if (!is_known) return absl::nullopt;
  return Comparison{writer, x, *constant};
}

}  // namespace weft
