#include "ops/analysis/values/constant_factors.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/values/arithmetic.h"
#include "ops/analysis/values/expressions.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/slice_range.h"
#include "ops/schema/tensor_type.h"
#include "ops/schema/uniform_values.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

using Number = absl::optional<double>;

bool IsProduct(Algebra algebra) {
  return algebra == Algebra::kMultiply || algebra == Algebra::kDivide;
}

// The number as a variable of that type holds it; none: not exactly, or not known.
Number InType(double number, DType dtype) {
  if (IsFollowed(dtype)) {
    const double rounded = Rounded(number, dtype);
    // NaN is not within either.
    return std::abs(rounded) <= LargestNumber(dtype) ? Number(rounded) : absl::nullopt;
  }
  if (!std::isfinite(number)) return absl::nullopt;
  if (SizeOf(dtype) != 2 || !IsFloating(dtype)) return absl::nullopt;
  // Both halves have eight bits and these exponents.
  int exponent = 0;
  const double bits = std::ldexp(std::frexp(number, &exponent), 8);
  if (bits != std::floor(bits) || exponent < -12 || exponent > 15) return absl::nullopt;
  return number;
}

// What attributes fill the output with.
Number Filled(const Op& op, const SignatureFacts& facts) {
  if (facts.algebra == Algebra::kConstant && !op.input_args().empty()) return absl::nullopt;
  if (facts.schema->FindAttr("value") != nullptr) return FilledNumber(op);
  // A list of numbers, in the attribute of their type.
  if (facts.schema->FindAttr("fp32_values") == nullptr) return absl::nullopt;
  const absl::StatusOr<OpAttrs> attrs = OpAttrs::Decode(op, *facts.schema);
  if (!attrs.ok()) return absl::nullopt;
  std::vector<double> values = attrs->Floats("fp64_values");
  const std::vector<double> floats = attrs->Floats("fp32_values");
  values.insert(values.end(), floats.begin(), floats.end());
  for (const char* name : {"int32_values", "int64_values"}) {
    const std::vector<int64_t> ints = attrs->Ints(name);
    values.insert(values.end(), ints.begin(), ints.end());
  }
  for (const Scalar& scalar : attrs->Scalars("values")) {
    values.push_back(std::visit([](auto number) { return static_cast<double>(number); }, scalar));
  }
  const bool are_alike =
      !values.empty() && absl::c_all_of(values, [&](double value) { return value == values[0]; });
  return are_alike ? Number(values[0]) : absl::nullopt;
}

// Of an op whose algebra is kScale, by its attributes alone.
absl::optional<ConstantFactors::Factor> ScaleByAttributes(const Op& op) {
  const absl::Span<const Symbol> x = op.Input("X");
  const bool adds = op.FloatAttr("bias").value_or(0) != 0 || !op.Input("BiasTensor").empty();
  if (x.size() != 1 || adds) return absl::nullopt;
  const uint32_t operand = static_cast<uint32_t>(x.data() - op.args().data());
  const float scale = static_cast<float>(op.FloatAttr("scale").value_or(1));
  return ConstantFactors::Factor{operand, ExactFactor(scale)};
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

// Visits ops in the order of the run. Keeps the numbers that variables hold at an op, in every run
// of it.
class ConstantFactors::Walk {
 public:
  explicit Walk(ConstantFactors* result)
      : result_(*result), program_(result->program_), storage_(program_) {
    for (const Op& op : AllOps(program_)) {
      const Block block = program_.block(op.block());
      for (Symbol name : op.output_args()) {
        const VarId var = block.Resolve(name);
        if (!var.valid() || program_.var(var).block() == op.block()) continue;
        is_written_inside_.insert(storage_.ClassOf(op.block(), name));
      }
    }
    is_walked_.resize(program_.num_blocks(), false);
  }

  void Run(int block) {
    if (is_walked_[block]) return;
    is_walked_[block] = true;
    for (OpId id : program_.block(block).ops()) Visit(program_.op(id));
  }

 private:
  void Visit(const Op& op) {
    const SignatureFacts& facts = result_.signatures_.Of(op);
    for (int block : op.SubBlocks()) Run(block);
    const absl::optional<Factor> factor = FactorOf(op, facts);
    if (factor.has_value()) result_.factors_.emplace(op.id(), *factor);
    std::vector<GradientFactor> gradients;
    if (facts.algebra == Algebra::kBackward) gradients = FactorsOfGradient(op);
    if (!gradients.empty()) result_.gradient_factors_.emplace(op.id(), std::move(gradients));
    const Number made = op.SubBlocks().empty() ? Made(op, facts) : absl::nullopt;
    std::vector<double> list = Listed(op);
    const Block block = program_.block(op.block());
    for (Symbol name : op.output_args()) EraseNumbersWith(op, name);
    const absl::Span<const Symbol> out = op.Output("Out");
    if ((!made.has_value() && list.empty()) || out.size() != 1) return;
    const VarId var = block.Resolve(out[0]);
    if (!var.valid() || is_written_inside_.contains(storage_.ClassOf(op.block(), out[0]))) return;
    if (!list.empty() && !storage_.SharesMemory(op.block(), out[0])) lists_[var] = std::move(list);
    if (!made.has_value()) return;
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    if (!type.has_value() || type->kind != TensorType::Kind::kDense) return;
    for (const char* attr : {"dtype", "out_dtype"}) {
      const int64_t given = op.IntAttr(attr).value_or(-1);
      if (given != -1 && DTypeFromProto(static_cast<int>(given)) != type->dtype) return;
    }
    const Number number = InType(*made, type->dtype);
    if (!number.has_value()) return;
    numbers_[var] = *number;
    if (storage_.SharesMemory(op.block(), out[0])) {
      sharing_[storage_.ClassOf(op.block(), out[0])].push_back(var);
    }
  }

  // Of the output, and of what may share its memory. An op whose output takes the memory of an
  // input, or gets a copy of it, leaves the input as it is.
  void EraseNumbersWith(const Op& op, Symbol output) {
    const Block block = program_.block(op.block());
    const VarId var = block.Resolve(output);
    numbers_.erase(var);
    lists_.erase(var);
    if (!storage_.SharesMemory(op.block(), output)) return;
    const auto sharing = sharing_.find(storage_.ClassOf(op.block(), output));
    if (sharing == sharing_.end()) return;
    std::vector<VarId> kept;
    for (VarId other : sharing->second) {
      const bool is_input = absl::c_any_of(
          op.input_args(), [&](Symbol name) { return block.Resolve(name) == other; });
      if (is_input && other != var && !storage_.SharedBy(op.id()).empty()) {
        kept.push_back(other);
      } else {
        numbers_.erase(other);
      }
    }
    sharing->second = std::move(kept);
  }

  Number NumberIn(const Op& op, absl::Span<const Symbol> names) const {
    if (names.size() != 1) return absl::nullopt;
    const VarId var = program_.block(op.block()).Resolve(names[0]);
    const auto found = var.valid() ? numbers_.find(var) : numbers_.end();
    return found == numbers_.end() ? absl::nullopt : Number(found->second);
  }
  // The same, as a factor.
  Number FactorIn(const Op& op, Symbol name) const {
    const Number number = NumberIn(op, {name});
    return number.has_value() && *number != 0 ? number : absl::nullopt;
  }

  absl::optional<TensorType> TypeOf(const Op& op, Symbol name) const {
    const VarId var = program_.block(op.block()).Resolve(name);
    return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  }

  // What slot Out of the op is filled with.
  Number Made(const Op& op, const SignatureFacts& facts) const {
    const bool is_source = facts.algebra == Algebra::kConstant || facts.algebra == Algebra::kFill ||
                           facts.algebra == Algebra::kZeros || ReadsDims(op.type());
    if (numbers_.empty() && lists_.empty() && !is_source) return absl::nullopt;
    if (facts.kind == SignatureFacts::Kind::kCollective) return Exchanged(op);
    if (facts.kind != SignatureFacts::Kind::kFunction || facts.schema == nullptr) {
      return absl::nullopt;
    }
    if (Slices(op.type())) return Sliced(op);
    switch (facts.algebra) {
      case Algebra::kConstant:
      case Algebra::kFill:
        return Filled(op, facts);
      case Algebra::kZeros:
        return 0;
      case Algebra::kCopy:
        if (op.input_args().empty()) return absl::nullopt;
        return NumberIn(op, {op.input_args()[facts.x]});
      case Algebra::kReshape:
        return NumberIn(op, op.Input("X"));
      case Algebra::kScale:
        return Scaled(op);
      default:
        return Computed(op, facts);
    }
  }

  // The numbers of the elements of the only output; empty: unknown, or too many.
  std::vector<double> Listed(const Op& op) const {
    std::vector<double> list;
    if (ListsDims(op.type()) && op.input_args().size() == 1) {
      // Of what ranks are not fed with: they have dims of their own.
      const VarId var = program_.block(op.block()).Resolve(op.input_args()[0]);
      if (!var.valid() || !program_.var(var).persistable()) return list;
      const absl::optional<TensorType> type = DeclaredType(program_.var(var));
      if (!type.has_value() || NumElements(type->dims) < 0) return list;
      list.assign(type->dims.begin(), type->dims.end());
    } else if (CountsUp(op.type())) {
      constexpr double kMost = 4096;
      const Number first = NumberIn(op, op.Input("Start")), end = NumberIn(op, op.Input("End"));
      const Number step = NumberIn(op, op.Input("Step"));
      if (!first.has_value() || !end.has_value() || !step.has_value() || *step == 0) return list;
      const absl::optional<TensorType> type = TypeOf(op, op.Input("Start")[0]);
      // As Scaled.
      const auto is_exact = [&](double number) { return InType(number, type->dtype) == number; };
      const double count = std::ceil((*end - *first) / *step);
      for (double i = 0; count <= kMost && i < count; ++i) {
        list.push_back(*first + i * *step);
        if (!is_exact(i) || !is_exact(i * *step) || !is_exact(list.back())) return {};
      }
    }
    return list;
  }

  // Elements of a list, if they are one number.
  Number Sliced(const Op& op) const {
    const absl::Span<const Symbol> in = op.Input("Input");
    const auto attr = [&](const char* name) {
      return op.IntsAttr(name).value_or(std::vector<int64_t>());
    };
    const std::vector<int64_t> starts = attr("starts"), ends = attr("ends");
    const std::vector<int64_t> steps = attr("strides");
    if (op.input_args().size() != 1 || in.size() != 1 || attr("axes") != std::vector<int64_t>{0} ||
        starts.size() != 1 || ends.size() != 1 || steps.size() > 1) {
      return absl::nullopt;
    }
    const auto list = lists_.find(program_.block(op.block()).Resolve(in[0]));
    if (list == lists_.end() || (!steps.empty() && steps[0] <= 0)) return absl::nullopt;
    const int64_t step = steps.empty() ? 1 : steps[0];
    const SliceRange range =
        TakeSlice(starts[0], ends[0], step, static_cast<int64_t>(list->second.size()));
    if (range.count < 1) return absl::nullopt;
    const double number = list->second[range.begin];
    for (int64_t i = 1; i < range.count; ++i) {
      if (list->second[range.begin + i * step] != number) return absl::nullopt;
    }
    return number;
  }

  Number Exchanged(const Op& op) const {
    const CollectiveOp* const collective = FindCollectiveOp(op);
    if (collective == nullptr || op.HasAttr(kGroupRanksAttr)) return absl::nullopt;
    const Number number = NumberIn(op, collective->Inputs(op));
    if (!number.has_value()) return absl::nullopt;
    if (collective->kind == CollectiveKind::kBroadcast) return number;
    if (collective->kind == CollectiveKind::kAllGather) return number;
    if (collective->kind != CollectiveKind::kAllReduce) return absl::nullopt;
    if (collective->reduction == Reduction::kProd) return absl::nullopt;
    const bool sums = collective->reduction == Reduction::kSum;
    if (!sums && collective->reduction != Reduction::kAvg) return number;
    if (sums && !result_.nranks_.has_value()) return absl::nullopt;
    constexpr int kMostRanks = 1 << 16;  // where their number is not known
    const int nranks = result_.nranks_.value_or(kMostRanks);
    const DType dtype = TypeOf(op, collective->Inputs(op)[0])->dtype;
    if (!AddsUpExactly(*number, nranks, dtype)) return absl::nullopt;
    return sums ? *number * nranks : *number;
  }

  Number Scaled(const Op& op) const {
    const Number x = NumberIn(op, op.Input("X"));
    const absl::Span<const Symbol> tensor = op.Input("ScaleTensor");
    const Number scale =
        tensor.empty() ? Number(op.FloatAttr("scale").value_or(1)) : NumberIn(op, tensor);
    if (!x.has_value() || !scale.has_value() || !op.Input("BiasTensor").empty()) {
      return absl::nullopt;
    }
    const double bias = op.FloatAttr("bias").value_or(0);
    // The kernel of an integer type takes both without their fractions.
    const absl::optional<TensorType> type = TypeOf(op, op.Input("X")[0]);
    const bool are_whole = *scale == std::trunc(*scale) && bias == std::trunc(bias);
    if (!type.has_value() || (!IsFloating(type->dtype) && !are_whole)) return absl::nullopt;
    // Or as numbers of its type.
    const Number by = InType(*scale, type->dtype), plus = InType(bias, type->dtype);
    if (!by.has_value() || !plus.has_value()) return absl::nullopt;
    const bool adds_last = op.BoolAttr("bias_after_scale").value_or(true);
    const double first = adds_last ? *x * *by : *x + *plus;
    // Not every processor rounds it, and the rest may be all that is left.
    if (*plus != 0 && InType(first, type->dtype) != first) return absl::nullopt;
    return adds_last ? first + *plus : first * *by;
  }

  Number OfTable(const Op& op) const {
    if (op.output_args().size() != 1) return absl::nullopt;
    const auto tensor_of = [&](Symbol name) {
      UniformTensor tensor{NumberIn(op, {name}), -1};
      const absl::optional<TensorType> type = TypeOf(op, name);
      if (type.has_value()) tensor.size = NumElements(type->dims);
      return tensor;
    };
    std::vector<UniformTensor> inputs;
    for (Symbol name : op.input_args()) inputs.push_back(tensor_of(name));
    return UniformResult(op, inputs, tensor_of(op.output_args()[0]).size);
  }

  Number Computed(const Op& op, const SignatureFacts& facts) const {
    const Arithmetic* const arithmetic = FindArithmetic(facts.algebra);
    if (arithmetic == nullptr || arithmetic->compute == nullptr) return OfTable(op);
    if (static_cast<int>(op.input_args().size()) != arithmetic->num_operands) return absl::nullopt;
    const Number x = NumberIn(op, op.Input("X"));
    const Number y = arithmetic->num_operands == 2 ? NumberIn(op, op.Input("Y")) : Number(0);
    if (!x.has_value() || !y.has_value()) return absl::nullopt;
    const absl::optional<TensorType> type = TypeOf(op, op.Input("X")[0]);
    return type.has_value() ? Number(arithmetic->compute(type->dtype, *x, *y)) : absl::nullopt;
  }

  absl::optional<Factor> FactorOf(const Op& op, const SignatureFacts& facts) const {
    if (facts.algebra == Algebra::kScale) return FactorOfTensor(op);
    if (!IsProduct(facts.algebra)) return absl::nullopt;
    const Symbol x = op.input_args()[facts.x], y = op.input_args()[facts.y];
    const bool divides = facts.algebra == Algebra::kDivide;
    const Number by_y = FactorIn(op, y);
    if (by_y.has_value() && KeepsShape(op, x, y)) {
      return Factor{facts.x, divides ? 1 / *by_y : *by_y, static_cast<int>(facts.y), divides};
    }
    const Number by_x = divides ? absl::nullopt : FactorIn(op, x);
    if (by_x.has_value() && KeepsShape(op, y, x)) {
      return Factor{facts.y, *by_x, static_cast<int>(facts.x)};
    }
    return absl::nullopt;
  }

  absl::optional<Factor> FactorOfTensor(const Op& op) const {
    absl::optional<Factor> factor = ScaleByAttributes(op);
    const absl::Span<const Symbol> tensor = op.Input("ScaleTensor");
    if (!factor.has_value() || tensor.size() != 1) return absl::nullopt;
    const Number number = FactorIn(op, tensor[0]);
    if (!number.has_value()) return absl::nullopt;
    factor->value = *number;
    factor->constant = static_cast<int>(tensor.data() - op.args().data());
    return factor;
  }

  std::vector<GradientFactor> FactorsOfGradient(const Op& op) const {
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
    const bool divides = algebra == Algebra::kDivide;
    const auto add = [&](const char* slot, Symbol operand, Symbol constant) {
      const Number value = FactorIn(op, constant);
      const absl::Span<const Symbol> made = op.Output(slot);
      if (!value.has_value() || made.size() != 1 || !KeepsShape(op, operand, constant)) return;
      factors.push_back({place(op.output_args(), made[0]),
                         {place(op.input_args(), out[0]), divides ? 1 / *value : *value,
                          static_cast<int>(place(op.input_args(), constant)), divides}});
    };
    add("X@GRAD", x[0], y[0]);
    if (!divides) add("Y@GRAD", y[0], x[0]);
    return factors;
  }

  // Whether a product of the two has the shape of `operand`.
  bool KeepsShape(const Op& op, Symbol operand, Symbol constant) const {
    const absl::optional<TensorType> x = TypeOf(op, operand), y = TypeOf(op, constant);
    if (!x.has_value() || !y.has_value() || x->dtype != y->dtype || !IsFloating(x->dtype)) {
      return false;
    }
    if (x->dims == y->dims) return true;
    // A single element keeps its value in any shape.
    return NumElements(y->dims) == 1 &&
           (NumElements(x->dims) == 1 || x->dims.size() >= y->dims.size());
  }

  ConstantFactors& result_;
  const Program& program_;
  const Storage storage_;
  // Classes of storage_ with variables that ops of other blocks than their own write, which may not
  // run, or run again.
  absl::flat_hash_set<uint64_t> is_written_inside_;
  std::vector<bool> is_walked_;  // by block
  absl::flat_hash_map<VarId, double> numbers_;
  absl::flat_hash_map<VarId, std::vector<double>> lists_;  // numbers of elements, of one dimension
  // By class of storage_: variables that may share memory, and have or had a number.
  absl::flat_hash_map<uint64_t, std::vector<VarId>> sharing_;
};

void ConstantFactors::Find() {
  if (is_made_) return;
  is_made_ = true;
  Walk(this).Run(0);
}

absl::optional<ConstantFactors::Factor> ConstantFactors::Of(const Op& op) {
  const Algebra algebra = signatures_.Of(op).algebra;
  if (algebra != Algebra::kScale && !IsProduct(algebra)) return absl::nullopt;
  if (algebra == Algebra::kScale && op.Input("ScaleTensor").empty()) return ScaleByAttributes(op);
  Find();
  const auto found = factors_.find(op.id());
  return found == factors_.end() ? absl::nullopt : absl::make_optional(found->second);
}

std::vector<ConstantFactors::GradientFactor> ConstantFactors::OfGradient(const Op& op) {
  Find();
  const auto found = gradient_factors_.find(op.id());
  return found == gradient_factors_.end() ? std::vector<GradientFactor>() : found->second;
}

}  // namespace weft
