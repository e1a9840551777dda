#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pir/dataflow.h"
#include "proto/formats/pir/translator.h"
#include "proto/op_role.h"

namespace weft::pir {

absl::Status Translator::ReadInto(ValueIndex value, pb::OpDesc::Var* slot) {
  if (value == kNoValue) return absl::OkStatus();
  const auto add = [&](VarIndex var) -> absl::Status {
    constexpr size_t kLeast = 9;  // that an operand takes in the file: {"%":0},
    const absl::string_view name = var == kNoVar ? kEmptyVarName : vars_[var].name;
    WEFT_RETURN_IF_ERROR(Spend(kLeast + name.size()));
    slot->add_arguments(std::string(name));
    return absl::OkStatus();
  };
  const uint32_t maker = document_.value(value).op;
  if (maker != kNoOp && op(maker).name == kCombineOp) {
    for (const Operand& element : operands(maker)) {
      VarIndex var = kNoVar;
      if (element.value != kNoValue) {
        WEFT_ASSIGN_OR_RETURN(var, vars_.Read(element.value));
      }
      WEFT_RETURN_IF_ERROR(add(var));
    }
    return absl::OkStatus();
  }
  const auto list = members_.find(value);
  if (list != members_.end()) {
    for (const VarIndex var : list->second) WEFT_RETURN_IF_ERROR(add(var));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const VarIndex var, vars_.Read(value));
  return add(var);
}

absl::Status Translator::Translate(uint32_t i, const OpRule& rule) {
  desc_.set_type(std::string(rule.desc));
  for (uint32_t k = 0; k < op(i).num_operands; ++k) {
    const OperandRule& operand = rule.operands[k];
    const ValueIndex value = operands(i)[k].value;
    if (operand.kind == OperandRule::Kind::kDropped) continue;
    if (GivesAttribute(document_, operand, value)) {
      WEFT_RETURN_IF_ERROR(SpendConstant(value));
      WEFT_RETURN_IF_ERROR(attrs_.AddConstant(value, operand));
      continue;
    }
    if (operand.kind == OperandRule::Kind::kConstant) {
      WEFT_RETURN_IF_ERROR(ReadTensor(value, operand.tensor_slot, operand.list_slot));
      continue;
    }
    if (rule.pir == "1.full_with_tensor") {
      WEFT_RETURN_IF_ERROR(ReadTensor(value, operand.target, "ShapeTensorList"));
      continue;
    }
    WEFT_RETURN_IF_ERROR(ReadInto(value, AddSlot(operand.target, desc_.mutable_inputs())));
  }
  for (const Attribute& attribute : attributes_) {
    WEFT_RETURN_IF_ERROR(attrs_.Convert(attribute, &rule));
  }
  WEFT_RETURN_IF_ERROR(attrs_.Derive(i, rule, attributes_));
  for (uint32_t r = 0; r < op(i).num_results; ++r) {
    if (rule.results[r].dropped) continue;
    WEFT_RETURN_IF_ERROR(AddResult(i, r, &rule, rule.results[r].slot));
  }
  if (rule.pir == "1.rnn") SetTypesOfRnn(i, rule);
  // Paddle declares both as fp32.
  if (rule.pir == "1.unique") {
    WEFT_ASSIGN_OR_RETURN(const auto x, vars_.TypeOf(operands(i)[0].value));
    SetType(op(i).first_result + rule.FindResult("out"), x->dtype);
    const Attribute* const dtype = FindAttribute("dtype", attributes_);
    const bool is_short = dtype != nullptr && absl::StrContains(dtype->data, "int32");
    SetType(op(i).first_result + rule.FindResult("inverse"),
            is_short ? pb::VarType::INT32 : pb::VarType::INT64);
  }
  if (rule.pir == "1.auc") SetType(op(i).first_result, pb::VarType::FP64);
  return rule.has_xshape ? AddXShape(i) : absl::OkStatus();
}

absl::Status Translator::ReadTensor(ValueIndex value, absl::string_view slot,
                                    absl::string_view list_slot) {
  if (!list_slot.empty()) {
    WEFT_ASSIGN_OR_RETURN(const ValueIndex numbers, StackedNumbers(value));
    if (numbers != kNoValue) return ReadInto(numbers, AddSlot(list_slot, desc_.mutable_inputs()));
  }
  return ReadInto(value, AddSlot(slot, desc_.mutable_inputs()));
}

// They may be known by themselves.
absl::StatusOr<ValueIndex> Translator::StackedNumbers(ValueIndex value) {
  const uint32_t stack = MakerOf(document_, value);
  if (stack == kNoOp || op(stack).name != "1.stack" || op(stack).num_operands != 1) return kNoValue;
  const ValueIndex list = operands(stack)[0].value;
  if (MakerName(document_, list) != kCombineOp) return kNoValue;
  const absl::Span<const Operand> numbers = operands(MakerOf(document_, list));
  WEFT_RETURN_IF_ERROR(Spend(numbers.size()));
  for (const Operand& number : numbers) {
    if (number.value == kNoValue) return kNoValue;
    WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(number.value));
    const bool is_one =
        type->kind == ValueType::Kind::kTensor &&
        std::all_of(type->dims.begin(), type->dims.end(), [](int64_t dim) { return dim == 1; });
    if (!is_one) return kNoValue;
  }
  return numbers.empty() ? kNoValue : list;
}

void Translator::SetType(ValueIndex value, pb::VarType::Type dtype) {
  const VarIndex var = vars_.Of(value);
  if (var == kNoVar) return;
  auto type = std::make_shared<ValueType>(*vars_[var].type);
  type->dtype = dtype;
  vars_[var].type = std::move(type);
}

// PIR does not know the types of what only the gradient op reads.
void Translator::SetTypesOfRnn(uint32_t i, const OpRule& rule) {
  for (const char* const name : {"dropout_state_out", "reserve"}) {
    const VarIndex var = vars_.Of(op(i).first_result + rule.FindResult(name));
    if (var == kNoVar) continue;
    auto type = std::make_shared<ValueType>(*vars_[var].type);
    if (name[0] == 'd') type->dtype = pb::VarType::UINT8;
    type->dims = {-1};
    vars_[var].type = std::move(type);
  }
}

absl::Status Translator::AddResult(uint32_t i, uint32_t r, const OpRule* rule,
                                   absl::string_view slot) {
  const ValueIndex value = op(i).first_result + r;
  WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(value));
  const int in_place_of = rule == nullptr ? -1 : rule->results[r].in_place_of;
  if (type->kind == ValueType::Kind::kNull) {
    if (absl::EndsWith(slot, kGradSuffix)) AddSlot(slot, desc_.mutable_outputs());
    return absl::OkStatus();
  }
  pb::OpDesc::Var* const out = AddSlot(slot, desc_.mutable_outputs());
  const ValueIndex overwritten = in_place_of < 0 ? kNoValue : operands(i)[in_place_of].value;
  if (type->kind == ValueType::Kind::kList) {
    return AddList(value, type->list_size, overwritten, out);
  }
  VarIndex var = kNoVar;
  if (overwritten != kNoValue) {
    WEFT_ASSIGN_OR_RETURN(var, vars_.Read(overwritten));
    if (vars_[var].block != vars_.block()) overwritten_.push_back(var);
    // Paddle's executor orders by variables: what reads the operand afterwards reads this.
    WEFT_RETURN_IF_ERROR(vars_.Define(value, var, /*overwrites=*/false));
  } else {
    const auto named = survey_.name_of_value.find(value);
    const bool is_again = named != survey_.name_of_value.end() && vars_.HasName(named->second);
    var = named != survey_.name_of_value.end()
              ? vars_.Named(named->second)
              : vars_.New(vars_.NameOf(value, rule != nullptr && op(i).num_results > 1
                                                  ? rule->results[r].name
                                                  : BaseName(op(i).name)));
    WEFT_RETURN_IF_ERROR(vars_.Define(value, var, is_again));
    WEFT_ASSIGN_OR_RETURN(const ResultFlags* const flags, FlagsOfResults(i));
    if (flags->stop_gradient[r]) vars_[var].stop_gradient = true;
  }
  out->add_arguments(vars_[var].name);
  return Spend(vars_[var].name.size());
}

absl::Status Translator::AddList(ValueIndex list, size_t size, ValueIndex overwritten,
                                 pb::OpDesc::Var* out) {
  const uint32_t i = document_.value(list).op;
  absl::Span<const Operand> overwritten_elements;
  if (overwritten != kNoValue) {
    overwritten_elements = operands(MakerOf(document_, overwritten));
    if (overwritten_elements.size() != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("%", document_.value(list).id, ": expected ", overwritten_elements.size(),
                       " elements, as the list in whose place it is has, found ", size));
    }
  }
  std::vector<VarIndex>& members = members_[list];
  const auto split = survey_.split_of.find(list);
  for (size_t k = 0; k < size; ++k) {
    VarIndex var = kNoVar;
    const bool has_value = split != survey_.split_of.end() && k < op(split->second).num_results;
    const ValueIndex value = has_value ? op(split->second).first_result + k : kNoValue;
    if (overwritten != kNoValue) {
      if (overwritten_elements[k].value != kNoValue) {
        WEFT_ASSIGN_OR_RETURN(var, vars_.Read(overwritten_elements[k].value));
        if (vars_[var].block != vars_.block()) overwritten_.push_back(var);
        if (has_value) WEFT_RETURN_IF_ERROR(vars_.Define(value, var, /*overwrites=*/false));
      }
    } else if (has_value) {
      WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(value));
      if (type->is_variable()) {
        var = vars_.New(vars_.NameOf(value, BaseName(op(i).name)));
        WEFT_RETURN_IF_ERROR(vars_.Define(value, var, /*overwrites=*/false));
      }
    }
    members.push_back(var);
    if (var != kNoVar) WEFT_RETURN_IF_ERROR(Spend(vars_[var].name.size()));
    out->add_arguments(var == kNoVar ? std::string(kEmptyVarName) : vars_[var].name);
  }
  return absl::OkStatus();
}

absl::Status Translator::AddXShape(uint32_t i) {
  if (IsGradientOp(op(i).name)) {
    const VarIndex xshape = *FindXShape(i);
    AddArgument("XShape", xshape, desc_.mutable_inputs());
    return AddForwardAttributes(forward_of_xshape_.at(xshape));
  }
  const ValueIndex x = operands(i)[0].value;
  WEFT_ASSIGN_OR_RETURN(const auto of_x, vars_.TypeOf(x));
  WEFT_RETURN_IF_ERROR(Spend(document_.value(x).type.size()));
  auto type = std::make_shared<ValueType>(*of_x);
  type->dims.insert(type->dims.begin(), 0);
  const VarIndex var = vars_.New(absl::StrCat(vars_[vars_.Of(op(i).first_result)].name, "_xshape"));
  vars_[var].type = std::move(type);
  AddArgument("XShape", var, desc_.mutable_outputs());
  xshape_of_result_[op(i).first_result] = var;
  xshape_of_x_[x] = var;
  forward_of_xshape_[var] = i;
  return absl::OkStatus();
}

absl::Status Translator::AddForwardAttributes(uint32_t forward) {
  const OpRule& rule = *FindRule(op(forward).name);
  const auto has = [this](absl::string_view name) {
    return std::any_of(desc_.attrs().begin(), desc_.attrs().end(),
                       [&](const pb::OpDesc::Attr& attr) { return attr.name() == name; });
  };
  for (uint32_t k = 0; k < op(forward).num_operands; ++k) {
    const OperandRule& operand = rule.operands[k];
    if (!GivesAttribute(document_, operand, operands(forward)[k].value) || has(operand.target)) {
      continue;
    }
    WEFT_RETURN_IF_ERROR(SpendConstant(operands(forward)[k].value));
    WEFT_RETURN_IF_ERROR(attrs_.AddConstant(operands(forward)[k].value, operand));
  }
  WEFT_RETURN_IF_ERROR(Spend(op(forward).attrs.size()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op(forward).attrs));
  for (const Attribute& attribute : attributes) {
    if (rule.attrs.empty() && !has(attribute.name)) {
      WEFT_RETURN_IF_ERROR(attrs_.Convert(attribute, &rule));
    }
  }
  return absl::OkStatus();
}

absl::optional<VarIndex> Translator::FindXShape(uint32_t i) const {
  const OpRule& rule = *FindRule(op(i).name);
  const ValueIndex grad = operands(i)[rule.FindOperand("out_grad")].value;
  const auto of_result = xshape_of_result_.find(training_.primal[grad]);
  if (of_result != xshape_of_result_.end()) return of_result->second;
  const int x = rule.FindOperand("x");
  const auto of_x = x < 0 ? xshape_of_x_.end() : xshape_of_x_.find(operands(i)[x].value);
  if (of_x != xshape_of_x_.end()) return of_x->second;
  return absl::nullopt;
}

bool Translator::HasXShape(uint32_t i) const {
  return !FindRule(op(i).name)->has_xshape || !IsGradientOp(op(i).name) ||
         FindXShape(i).has_value();
}

}  // namespace weft::pir
