#include "ops/analysis/values/constant_factors.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

bool IsProduct(Algebra algebra) {
  return algebra == Algebra::kMultiply || algebra == Algebra::kDivide;
}

// What an op without inputs fills its output with; none: it does not, or no finite number but 0.
absl::optional<double> Filled(const Op& op) {
  if (!op.input_args().empty() || op.output_args().size() != 1) return absl::nullopt;
  const OpSchema* const schema = FindOpSchema(op.type());
  const bool fills = schema != nullptr && schema->FindAttr("value") != nullptr &&
                     AlgebraOf(op, schema) == Algebra::kConstant;
  if (!fills) return absl::nullopt;
  double value = op.FloatAttr("value").value_or(0);
  const std::string text = op.StringAttr("str_value").value_or("");
  if (!text.empty() && !absl::SimpleAtod(text, &value)) return absl::nullopt;
  // As fp32 has it; narrower types may not have it at all.
  if (op.IntAttr("dtype").value_or(pb::VarType::FP32) == pb::VarType::FP32) {
    value = static_cast<float>(value);
  } else if (op.IntAttr("dtype") != pb::VarType::FP64) {
    return absl::nullopt;
  }
  if (!std::isfinite(value) || value == 0) return absl::nullopt;
  return value;
}

}  // namespace

bool FillsZeros(const Op& op, const SignatureFacts& facts) {
  if (facts.algebra == Algebra::kZeros) return true;
  const bool fills = (facts.algebra == Algebra::kFill || facts.algebra == Algebra::kConstant) &&
                     facts.schema != nullptr && facts.schema->FindAttr("value") != nullptr;
  // Inputs and text override attribute value.
  if (!fills || !op.Input("ValueTensor").empty()) return false;
  const std::string text = op.StringAttr("str_value").value_or("");
  return op.FloatAttr("value").value_or(0) == 0 && (text.empty() || text == "0" || text == "0.0");
}

void ConstantFactors::FindConstants() {
  is_made_ = true;
  absl::flat_hash_map<VarId, int> num_writers;
  for (const Op& op : AllOps(program_)) {
    const Block block = program_.block(op.block());
    for (Symbol name : op.output_args()) {
      const VarId var = block.Resolve(name);
      if (!var.valid() || ++num_writers[var] > 1) {
        constants_.erase(var);
        continue;
      }
      const absl::optional<double> value = Filled(op);
      const Var of = program_.var(var);
      if (!value.has_value() || of.persistable() || of.need_check_feed()) continue;
      if (of.block() == op.block()) constants_[var] = *value;
    }
  }
}

absl::optional<double> ConstantFactors::ConstantIn(const Op& op, Symbol name) {
  if (!is_made_) FindConstants();
  const VarId var = program_.block(op.block()).Resolve(name);
  const auto found = var.valid() ? constants_.find(var) : constants_.end();
  if (found == constants_.end()) return absl::nullopt;
  return found->second;
}

bool ConstantFactors::KeepsShape(const Op& op, Symbol operand, Symbol constant) const {
  const auto type_of = [&](Symbol name) {
    const VarId var = program_.block(op.block()).Resolve(name);
    return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  };
  const absl::optional<TensorType> x = type_of(operand), y = type_of(constant);
  if (!x.has_value() || !y.has_value() || x->dtype != y->dtype || !IsFloating(x->dtype)) {
    return false;
  }
  if (x->dims == y->dims) return true;
  // A single element keeps its value in any shape.
  return NumElements(y->dims) == 1 &&
         (NumElements(x->dims) == 1 || x->dims.size() >= y->dims.size());
}

absl::optional<ConstantFactors::Factor> ConstantFactors::OfProduct(const Op& op,
                                                                   const SignatureFacts& facts) {
  const Symbol x = op.input_args()[facts.x], y = op.input_args()[facts.y];
  const bool divides = facts.algebra == Algebra::kDivide;
  const absl::optional<double> by_y = ConstantIn(op, y);
  if (by_y.has_value() && KeepsShape(op, x, y)) {
    return Factor{facts.x, divides ? 1 / *by_y : *by_y};
  }
  const absl::optional<double> by_x = divides ? absl::nullopt : ConstantIn(op, x);
  if (by_x.has_value() && KeepsShape(op, y, x)) return Factor{facts.y, *by_x};
  return absl::nullopt;
}

std::vector<ConstantFactors::GradientFactor> ConstantFactors::OfGradient(const Op& op) {
  std::vector<GradientFactor> factors;
  absl::string_view type = op.type();
  if (!absl::ConsumeSuffix(&type, "_grad")) return factors;
  const Algebra algebra = AlgebraOf(type, FindOpSchema(type));
  if (!IsProduct(algebra)) return factors;
  const absl::Span<const Symbol> x = op.Input("X"), y = op.Input("Y"), out = op.Input("Out@GRAD");
  if (x.size() != 1 || y.size() != 1 || out.size() != 1) return factors;
  const auto place = [](absl::Span<const Symbol> args, Symbol arg) {
    return static_cast<uint32_t>(std::find(args.begin(), args.end(), arg) - args.begin());
  };
  const auto add = [&](const char* slot, Symbol operand, Symbol constant) {
    const absl::optional<double> value = ConstantIn(op, constant);
    const absl::Span<const Symbol> made = op.Output(slot);
    if (!value.has_value() || made.size() != 1 || !KeepsShape(op, operand, constant)) return;
    factors.push_back(
        {place(op.output_args(), made[0]),
         {place(op.input_args(), out[0]), algebra == Algebra::kDivide ? 1 / *value : *value}});
  };
  add("X@GRAD", x[0], y[0]);
  if (algebra == Algebra::kMultiply) add("Y@GRAD", y[0], x[0]);
  return factors;
}

}  // namespace weft
