#include "ops/analysis/values/scalar_slice.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/values/arithmetic.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/uniform_values.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

bool IsDivision(Algebra algebra) {
  return algebra == Algebra::kDivide || algebra == Algebra::kFloorDivide ||
         algebra == Algebra::kModulo;
}

}  // namespace

class ScalarSlicer {
 public:
  using Instruction = ScalarSlice::Instruction;

  // `before`: invalid for the end of the program.
  ScalarSlicer(const Program& program, OpId before)
      : program_(program), before_(before), is_hidden_(program.var_id_limit(), false) {
    OpTraits traits(program);
    for (const Op& op : AllOps(program)) {
      if (op.block() > 0 || traits.Has(op, Trait::kAlias)) NoteHiddenWrites(op);
    }
  }

  // The variables that must be known at the start of the step.
  absl::StatusOr<std::vector<Symbol>> Slice(absl::Span<const Symbol> at_the_end, Symbol at_before) {
    std::vector<Symbol> carried(at_the_end.begin(), at_the_end.end());
    is_in_slice_.assign(program_.op_id_limit(), false);
    size_t known = 0;
    // The step before computes what a step needs at its start.
    do {
      std::vector<bool> needed(program_.var_id_limit(), false);
      for (Symbol name : carried) WEFT_RETURN_IF_ERROR(Need(name, &needed));
      known = carried.size();
      WEFT_RETURN_IF_ERROR(MarkBackward(at_before, &needed));
      for (size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) continue;
        const Symbol name = program_.var(VarId(static_cast<uint32_t>(i))).name_symbol();
        if (std::find(carried.begin(), carried.end(), name) == carried.end()) {
          carried.push_back(name);
        }
      }
    } while (known < carried.size());
    return carried;
  }

  // The instructions of the ops that Slice found, on numbers that NumberOf counts.
  absl::StatusOr<std::vector<Instruction>> Translate(Symbol at_before) {
    std::vector<Instruction> instructions;
    for (OpId id : program_.block(0).ops()) {
      if (id == before_) {
        Instruction read;
        WEFT_ASSIGN_OR_RETURN(read.x, NumberOf(at_before));
        instructions.push_back(read);
      }
      if (!is_in_slice_[id.value()]) continue;
      WEFT_ASSIGN_OR_RETURN(Instruction instruction, TranslateOp(program_.op(id)));
      instructions.push_back(instruction);
    }
    return instructions;
  }

  absl::StatusOr<int> NumberOf(Symbol name) {
    const auto [it, is_new] = number_of_.try_emplace(name, static_cast<int>(number_of_.size()));
    if (!is_new) return it->second;
    const VarId var = program_.block(0).FindVar(name);
    if (!var.valid()) return Unknown(name, "is not declared");
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    if (!type.has_value() || NumElements(type->dims) != 1 || !IsFollowed(type->dtype)) {
      return Unknown(name, "is no number");
    }
    return it->second;
  }
  size_t num_numbers() const { return number_of_.size(); }

 private:
  absl::Status Unknown(Symbol name, absl::string_view why) const {
    return absl::UnimplementedError(absl::StrCat("variable ", program_.name(name), " ", why));
  }

  absl::Status Need(Symbol name, std::vector<bool>* needed) const {
    const VarId var = program_.block(0).FindVar(name);
    if (!var.valid()) return Unknown(name, "is not declared");
    if (is_hidden_[var.value()]) return Unknown(name, "is written in a block, or in a buffer");
    (*needed)[var.value()] = true;
    return absl::OkStatus();
  }

  // From the end of the block to its beginning: which ops, and which variables before them.
  absl::Status MarkBackward(Symbol at_before, std::vector<bool>* needed) {
    const absl::Span<const OpId> ops = program_.block(0).ops();
    for (auto it = ops.rbegin(); it != ops.rend(); ++it) {
      const Op op = program_.op(*it);
      if (*it == before_) WEFT_RETURN_IF_ERROR(Need(at_before, needed));
      bool writes = false;
      for (Symbol out : op.output_args()) {
        const VarId var = program_.block(0).FindVar(out);
        writes = writes || (var.valid() && (*needed)[var.value()]);
      }
      if (!writes || MovesNothing(op)) continue;
      if (op.output_args().size() != 1) {
        return Unknown(op.output_args()[0], absl::StrCat("is written by ", op.DebugName()));
      }
      is_in_slice_[it->value()] = true;
      (*needed)[program_.block(0).FindVar(op.output_args()[0]).value()] = false;
      for (Symbol in : op.input_args()) {
        if (program_.name(in) != kEmptyVarName) WEFT_RETURN_IF_ERROR(Need(in, needed));
      }
    }
    return absl::OkStatus();
  }

  // Variables that ops of inner blocks write, or that are in buffers: MarkBackward misses writes.
  void NoteHiddenWrites(const Op& op) {
    for (Symbol out : op.output_args()) {
      const VarId var = program_.block(op.block()).Resolve(out);
      if (var.valid()) is_hidden_[var.value()] = true;
    }
  }

  // Orders streams, or broadcasts a replicated value.
  bool MovesNothing(const Op& op) const {
    const SignatureFacts facts = MakeSignatureFacts(op);
    if (facts.kind == SignatureFacts::Kind::kIgnored) return true;
    if (facts.kind != SignatureFacts::Kind::kCollective) return false;
    const CollectiveOp& collective = *FindCollectiveOp(op);
    return collective.kind == CollectiveKind::kBroadcast &&
           collective.Inputs(op) == collective.Outputs(op);
  }

  absl::StatusOr<Instruction> TranslateOp(const Op& op) {
    const Symbol out = op.output_args()[0];
    const OpSchema* schema = FindOpSchema(op.type());
    Instruction instruction;
    instruction.op = op.id();
    instruction.algebra = AlgebraOf(op, schema);
    const Arithmetic* const arithmetic = FindArithmetic(instruction.algebra);
    // Other constants have more than one element.
    const bool is_constant = schema != nullptr && instruction.algebra == Algebra::kConstant &&
                             schema->FindAttr("value") != nullptr;
    if (arithmetic == nullptr && !is_constant) {
      return Unknown(out, absl::StrCat("is written by ", op.DebugName()));
    }
    WEFT_ASSIGN_OR_RETURN(instruction.out, NumberOf(out));
    instruction.dtype = DeclaredType(program_.var(program_.block(0).FindVar(out)))->dtype;
    if (is_constant) return Constant(op, instruction);
    instruction.compute = arithmetic->compute;
    const int num_operands = arithmetic->num_operands;
    const absl::Span<const Symbol> in = op.input_args();
    // The one operand may have another slot, as that of print has.
    const bool are_known =
        num_operands == 1 || (op.Input("X").size() == 1 && op.Input("Y").size() == 1);
    if (static_cast<int>(in.size()) != num_operands || !are_known) {
      return Unknown(out, absl::StrCat("is written by ", op.DebugName(), " with other slots"));
    }
    WEFT_ASSIGN_OR_RETURN(instruction.x, NumberOf(num_operands == 1 ? in[0] : op.Input("X")[0]));
    if (num_operands == 2) {
      WEFT_ASSIGN_OR_RETURN(instruction.y, NumberOf(op.Input("Y")[0]));
    }
    if (instruction.algebra == Algebra::kIncrement) {
      instruction.bias = op.FloatAttr("step").value_or(1);
    } else if (instruction.algebra == Algebra::kScale) {
      instruction.number = op.FloatAttr("scale").value_or(1);
      const bool is_after = op.BoolAttr("bias_after_scale").value_or(true);
      (is_after ? instruction.bias : instruction.before) = op.FloatAttr("bias").value_or(0);
    }
    // Attributes become numbers of the variable's type.
    for (double* number : {&instruction.number, &instruction.before, &instruction.bias}) {
      *number = Rounded(*number, instruction.dtype);
    }
    return instruction;
  }

  absl::StatusOr<Instruction> Constant(const Op& op, Instruction instruction) const {
    if (!op.input_args().empty()) {
      return Unknown(op.output_args()[0],
                     absl::StrCat("is written by ", op.DebugName(), " from inputs"));
    }
    const absl::optional<double> number = FilledNumber(op);
    if (!number.has_value()) {
      return Unknown(op.output_args()[0],
                     absl::StrCat("is written by ", op.DebugName(), " with no number"));
    }
    instruction.number = *number;
    return instruction;
  }

  const Program& program_;
  const OpId before_;
  std::vector<bool> is_in_slice_;  // by OpId
  std::vector<bool> is_hidden_;    // by VarId: written by no op of the root block alone
  absl::flat_hash_map<Symbol, int> number_of_;
};

absl::StatusOr<ScalarSlice> ScalarSlice::Of(const Program& main, const Program& startup,
                                            OpId before, Symbol variable) {
  ScalarSlicer slicer(main, before);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Symbol> carried, slicer.Slice({}, variable));
  ScalarSlice slice;
  WEFT_ASSIGN_OR_RETURN(slice.instructions_, slicer.Translate(variable));

  // Their initial values, from a slice of the startup program.
  std::vector<Symbol> begin;
  for (Symbol name : carried) {
    const VarId there = startup.block(0).FindVar(main.name(name));
    const bool is_kept = main.var(main.block(0).FindVar(name)).persistable();
    if (!is_kept || !there.valid()) {
      return absl::UnimplementedError(
          absl::StrCat("variable ", main.name(name), " is ",
                       is_kept ? "not set by the startup program" : "data of the step"));
    }
    begin.push_back(startup.var(there).name_symbol());
  }
  ScalarSlicer initial(startup, OpId());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Symbol> unset, initial.Slice(begin, Symbol()));
  ScalarSlice first;
  WEFT_ASSIGN_OR_RETURN(first.instructions_, initial.Translate(Symbol()));
  std::vector<bool> is_set(startup.symbols().size(), false);
  for (const Instruction& instruction : first.instructions_) {
    is_set[startup.op(instruction.op).output_args()[0].value()] = true;
  }
  for (Symbol name : unset) {
    if (is_set[name.value()]) continue;
    return absl::UnimplementedError(
        absl::StrCat("variable ", startup.name(name), " is not set by the startup program"));
  }
  std::vector<int> from, to;
  for (size_t i = 0; i < begin.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(from.emplace_back(), initial.NumberOf(begin[i]));
    WEFT_ASSIGN_OR_RETURN(to.emplace_back(), slicer.NumberOf(carried[i]));
  }
  first.numbers_.assign(initial.num_numbers(), 0);
  double nothing = 0;
  WEFT_RETURN_IF_ERROR(first.Run(&nothing));
  slice.numbers_.assign(slicer.num_numbers(), 0);
  for (size_t i = 0; i < begin.size(); ++i) slice.numbers_[to[i]] = first.numbers_[from[i]];
  return slice;
}

absl::StatusOr<double> ScalarSlice::RunStep() {
  double result = 0;
  WEFT_RETURN_IF_ERROR(Run(&result));
  return result;
}

absl::Status ScalarSlice::Run(double* result) {
  for (const Instruction& instruction : instructions_) {
    const double x = instruction.x < 0 ? 0 : numbers_[instruction.x];
    const double y = instruction.y < 0 ? 0 : numbers_[instruction.y];
    if (!instruction.op.valid()) {
      *result = x;
      continue;
    }
    double number = instruction.number;  // of a constant
    if (instruction.algebra == Algebra::kIncrement) {
      number = x + instruction.bias;
    } else if (instruction.algebra == Algebra::kScale) {
      const double sum = Rounded(x + instruction.before, instruction.dtype);
      number = Rounded(sum * number, instruction.dtype) + instruction.bias;
    } else if (instruction.algebra != Algebra::kConstant) {
      if (IsDivision(instruction.algebra) && y == 0 && !IsFloating(instruction.dtype)) {
        return absl::InvalidArgumentError("an integer is divided by 0");
      }
      number = instruction.compute(instruction.dtype, x, y);
    }
    // NaN as an integer is what the processor makes of it.
    const bool fits = std::abs(number) <= LargestNumber(instruction.dtype);
    if (IsInteger(instruction.dtype) && !fits) {
      return absl::InvalidArgumentError("an integer overflows");
    }
    numbers_[instruction.out] = Rounded(number, instruction.dtype);
  }
  return absl::OkStatus();
}

}  // namespace weft
