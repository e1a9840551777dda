#include "proto/formats/pir/translator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/host_schedules.h"
#include "proto/op_role.h"

namespace weft::pir {

absl::StatusOr<Translation> Translator::Run() {
  pairs_ = training_.pairs;
  pairs_.insert(pairs_.end(), training_.updates.begin(), training_.updates.end());
  std::stable_sort(pairs_.begin(), pairs_.end(),
                   [](const auto& a, const auto& b) { return a.op < b.op; });
  WEFT_RETURN_IF_ERROR(VisitOps(0));
  return Finish();
}

absl::Status Translator::VisitOps(uint32_t block) {
  for (const uint32_t i : document_.blocks()[block].ops) {
    WEFT_RETURN_IF_ERROR(Annotate(document_.DebugName(i), Visit(i)));
  }
  return absl::OkStatus();
}

absl::Status Translator::Visit(uint32_t i) {
  const absl::string_view name = op(i).name;
  desc_.Clear();
  if (survey_.is_unused[i]) return absl::OkStatus();
  if (name == kIf) return VisitIf(i);
  if (name == kWhile) return VisitWhile(i);
  if (name == "p") return VisitParameter(i);
  if (name == "1.data") return VisitData(i);
  if (IsSink(name)) return VisitSink(i);
  if (name == kYield) return absl::OkStatus();
  if (name == kCombineOp) return VisitCombine(i);
  if (name == kSplitOp) return VisitSplit(i);
  if (name == "1.share_data_") return VisitShare(i);
  if (op(i).num_blocks > 0) return KeepWithBlocks(i);
  if (IsConstant(name) && !survey_.is_kept[i]) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(attributes_, ReadAttributes(op(i).attrs));
  WEFT_RETURN_IF_ERROR(TakeSchedule());
  if (name == "1.full_int_array" && op(i).num_results == 1) {
    WEFT_RETURN_IF_ERROR(VisitIntegers(i));
  } else if (name == "1.shape64") {
    WEFT_RETURN_IF_ERROR(VisitShape(i));
  } else if (name == "1.arange" && Translates(document_, i)) {
    WEFT_RETURN_IF_ERROR(VisitRange(i));
  } else if (Translates(document_, i) && HasXShape(i)) {
    WEFT_RETURN_IF_ERROR(Translate(i, *FindRule(name)));
  } else {
    WEFT_RETURN_IF_ERROR(Keep(i));
  }
  return Add(i);
}

absl::Status Translator::VisitParameter(uint32_t i) {
  WEFT_ASSIGN_OR_RETURN(const Parameter parameter, ReadParameter(op(i)));
  if (op(i).num_results != 1) return absl::InvalidArgumentError("expected one result");
  const VarIndex var = vars_.Named(parameter.name);
  WEFT_RETURN_IF_ERROR(vars_.Define(op(i).first_result, var, /*overwrites=*/false));
  vars_[var].persistable = parameter.persistable;
  vars_[var].is_parameter = parameter.is_parameter;
  vars_[var].stop_gradient = parameter.stop_gradient;
  if (parameter.is_distributed) distributed_params_.push_back(parameter.name);
  return absl::OkStatus();
}

absl::Status Translator::TakeSchedule() {
  const Attribute* const attribute = FindAttribute(kScheduleAttr, attributes_);
  if (attribute == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string text, StringOf(*attribute));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.second.empty() || !vars_.HasName(parts.first)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attribute ", kScheduleAttr, ": expected a variable, '=' and its schedule, found ", text));
  }
  vars_[vars_.Named(parts.first)].lr_schedule = std::make_shared<const std::string>(parts.second);
  attributes_.erase(attributes_.begin() + (attribute - attributes_.data()));
  return absl::OkStatus();
}

absl::StatusOr<const Translator::ResultFlags*> Translator::FlagsOfResults(uint32_t i) {
  if (flags_.op == i) return &flags_;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                        ReadAttributes(op(i).result_attrs));
  const auto read = [&](absl::string_view name) -> absl::StatusOr<std::vector<bool>> {
    const uint32_t size = op(i).num_results;
    const Attribute* const attribute = FindAttribute(name, attributes);
    if (attribute == nullptr) return std::vector<bool>(size, false);
    WEFT_ASSIGN_OR_RETURN(std::vector<bool> flags, FlagsOf(*attribute));
    if (flags.size() == size) return flags;
    return absl::InvalidArgumentError(absl::StrCat(
        "OA: expected a value of ", name, " for each of ", size, " results, found ", flags.size()));
  };
  flags_.op = kNoOp;
  WEFT_ASSIGN_OR_RETURN(flags_.persistable, read("persistable"));
  WEFT_ASSIGN_OR_RETURN(flags_.stop_gradient, read("stop_gradient"));
  flags_.op = i;
  return &flags_;
}

absl::Status Translator::VisitData(uint32_t i) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op(i).attrs));
  const Attribute* const name = FindAttribute("name", attributes);
  if (name == nullptr || op(i).num_results != 1) {
    return absl::InvalidArgumentError("expected an attribute name and one result");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string text, StringOf(*name));
  const VarIndex var = vars_.Named(text);
  WEFT_RETURN_IF_ERROR(vars_.Define(op(i).first_result, var, /*overwrites=*/false));
  WEFT_ASSIGN_OR_RETURN(const ResultFlags* const flags, FlagsOfResults(i));
  vars_[var].persistable = flags->persistable[0];
  vars_[var].stop_gradient = flags->stop_gradient[0];
  if (!vars_[var].persistable) vars_[var].need_check_feed = true;
  return absl::OkStatus();
}

absl::Status Translator::VisitSink(uint32_t i) {
  if (op(i).block != 0) return absl::InvalidArgumentError("expected it in the root block only");
  WEFT_ASSIGN_OR_RETURN(const std::string name, SinkName(document_, i));
  const ValueIndex value = operands(i)[0].value;
  WEFT_ASSIGN_OR_RETURN(const VarIndex from, vars_.Read(value));
  const bool is_parameter = op(i).name == "0.set_parameter";
  WEFT_RETURN_IF_ERROR(Spend(vars_[from].name.size()));
  const VarIndex var = vars_.Named(name);
  vars_[var].persistable = true;
  if (is_parameter) vars_[var].is_parameter = true;
  if (var == from) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(value));
  vars_.Overwrite(var);
  if (vars_[var].type == nullptr) vars_[var].type = type;
  desc_.Clear();
  desc_.set_type("assign");
  AddArgument("X", from, desc_.mutable_inputs());
  AddArgument("Out", var, desc_.mutable_outputs());
  attributes_.clear();
  return Add(i);
}

absl::Status Translator::Spend(size_t bytes) {
  constexpr size_t kTimes = 8, kLeast = size_t{1} << 20;
  copied_ += bytes;
  if (copied_ <= std::max(kTimes * document_.bytes().size(), kLeast)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "expected names, lists and constants that take at most ", kTimes,
      " times the bytes of the file where ops read them, found more: in PIR, many ops may read one "
      "list or constant, and in ProgramDesc each has its own"));
}

absl::Status Translator::SpendConstant(ValueIndex value) {
  const uint32_t maker = value == kNoValue ? kNoOp : document_.value(value).op;
  return maker == kNoOp ? absl::OkStatus() : Spend(op(maker).attrs.size());
}

absl::Status Translator::VisitCombine(uint32_t i) {
  if (op(i).num_results != 1) return absl::InvalidArgumentError("expected one result");
  for (const Operand& element : operands(i)) {
    if (element.value == kNoValue || vars_.Of(element.value) != kNoVar) continue;
    WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(element.value));
    const uint32_t maker = document_.value(element.value).op;
    const bool is_list = maker != kNoOp && op(maker).name == kCombineOp;
    if (type->kind == ValueType::Kind::kNull && !is_list) continue;
    return absl::UnimplementedError(absl::StrCat(
        "expected a list of dense tensors, found the element %", document_.value(element.value).id,
        ", ", document_.value(element.value).type.substr(0, 64)));
  }
  return absl::OkStatus();
}

absl::Status Translator::VisitSplit(uint32_t i) {
  if (op(i).num_operands != 1 || operands(i)[0].value == kNoValue) {
    return absl::InvalidArgumentError("expected one operand");
  }
  const auto members = members_.find(operands(i)[0].value);
  // Of what 0.combine has just made, too.
  std::vector<VarIndex> vars;
  const uint32_t maker = document_.value(operands(i)[0].value).op;
  if (members != members_.end()) {
    WEFT_RETURN_IF_ERROR(Spend(members->second.size() * sizeof(VarIndex)));
    vars = members->second;
  } else if (maker != kNoOp && op(maker).name == kCombineOp) {
    WEFT_RETURN_IF_ERROR(Spend(op(maker).num_operands * sizeof(VarIndex)));
    for (const Operand& operand : operands(maker)) {
      if (operand.value == kNoValue) return absl::InvalidArgumentError("an empty list element");
      WEFT_ASSIGN_OR_RETURN(vars.emplace_back(), vars_.Read(operand.value));
    }
  }
  if (vars.size() != op(i).num_results) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a list of ", op(i).num_results, " values, found ", vars.size()));
  }
  for (uint32_t r = 0; r < vars.size(); ++r) {
    if (vars[r] == kNoVar) continue;
    WEFT_RETURN_IF_ERROR(vars_.Define(op(i).first_result + r, vars[r], /*overwrites=*/false));
  }
  return absl::OkStatus();
}

absl::Status Translator::VisitShare(uint32_t i) {
  if (op(i).num_operands != 1 || op(i).num_results != 1 || operands(i)[0].value == kNoValue) {
    return absl::InvalidArgumentError("expected one operand and one result");
  }
  WEFT_ASSIGN_OR_RETURN(const VarIndex var, vars_.Read(operands(i)[0].value));
  return vars_.Define(op(i).first_result, var, /*overwrites=*/false);
}

void Translator::AddArgument(absl::string_view slot, VarIndex var, Slots* slots) {
  AddSlot(slot, slots)->add_arguments(vars_[var].name);
}

pb::OpDesc::Var* Translator::AddSlot(absl::string_view slot, Slots* slots) {
  pb::OpDesc::Var* const added = slots->Add();
  added->set_parameter(std::string(slot));
  return added;
}

absl::Status Translator::VisitIntegers(uint32_t i) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, attrs_.IntegersOf(i));
  WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(op(i).first_result));
  desc_.set_type("assign_value");
  attrs_.Add("dtype", pb::INT)->set_i(type->dtype);
  attrs_.Add("shape", pb::INTS)->add_ints(static_cast<int32_t>(ints.size()));
  const bool is_long = type->dtype == pb::VarType::INT64;
  pb::OpDesc::Attr* const values =
      attrs_.Add(is_long ? "int64_values" : "int32_values", is_long ? pb::LONGS : pb::INTS);
  for (const int64_t number : ints) {
    if (is_long) {
      values->add_longs(number);
    } else {
      values->add_ints(static_cast<int32_t>(number));
    }
  }
  return AddResult(i, 0, nullptr, "Out");
}

// ProgramDesc's op makes integers of 32 bits.
absl::Status Translator::VisitShape(uint32_t i) {
  if (op(i).num_operands != 1 || op(i).num_results != 1) {
    return absl::InvalidArgumentError("expected one operand and one result");
  }
  WEFT_ASSIGN_OR_RETURN(const VarIndex x, vars_.Read(operands(i)[0].value));
  WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(op(i).first_result));
  WEFT_RETURN_IF_ERROR(Spend(vars_[x].name.size()));
  const VarIndex narrow =
      vars_.New(absl::StrCat("shape_", document_.value(op(i).first_result).id, "_int32"));
  auto of_narrow = std::make_shared<ValueType>(*type);
  of_narrow->dtype = pb::VarType::INT32;
  vars_[narrow].type = std::move(of_narrow);
  WriteHelper(i, "shape", {{"Input", {x}}}, {narrow});
  desc_.set_type("cast");
  attrs_.Add("in_dtype", pb::INT)->set_i(pb::VarType::INT32);
  attrs_.Add("out_dtype", pb::INT)->set_i(pb::VarType::INT64);
  AddArgument("X", narrow, desc_.mutable_inputs());
  return AddResult(i, 0, nullptr, "Out");
}

absl::Status Translator::VisitRange(uint32_t i) {
  WEFT_ASSIGN_OR_RETURN(const auto type, vars_.TypeOf(op(i).first_result));
  std::vector<VarIndex> bounds;
  for (const Operand& operand : operands(i)) {
    WEFT_ASSIGN_OR_RETURN(const VarIndex given, vars_.Read(operand.value));
    WEFT_RETURN_IF_ERROR(Spend(vars_[given].name.size()));
    bounds.push_back(given);
    if (vars_[given].type->dtype == type->dtype) continue;
    const std::string stem = absl::StrCat("arange_", document_.value(op(i).first_result).id);
    bounds.back() = vars_.New(absl::StrCat(stem, "_bound", bounds.size()));
    auto cast = std::make_shared<ValueType>(*vars_[given].type);
    cast->dtype = type->dtype;
    vars_[bounds.back()].type = std::move(cast);
    desc_.Clear();
    attrs_.Add("in_dtype", pb::INT)->set_i(vars_[given].type->dtype);
    attrs_.Add("out_dtype", pb::INT)->set_i(type->dtype);
    WriteHelper(i, "cast", {{"X", {given}}}, {bounds.back()});
  }
  desc_.Clear();
  desc_.set_type("range");
  const char* const slots[] = {"Start", "End", "Step"};
  for (size_t k = 0; k < 3; ++k) AddArgument(slots[k], bounds[k], desc_.mutable_inputs());
  return AddResult(i, 0, nullptr, "Out");
}

absl::Status Translator::Keep(uint32_t i) {
  const absl::string_view name = op(i).name;
  const size_t dot = name.find('.');
  const absl::string_view dialect = name.substr(0, dot);
  desc_.set_type(absl::StrCat(dialect == "0"   ? "builtin"
                              : dialect == "1" ? "pd_op"
                              : dialect == "2" ? "cf"
                                               : dialect,
                              dot == absl::string_view::npos ? "" : name.substr(dot)));
  for (uint32_t k = 0; k < op(i).num_operands; ++k) {
    WEFT_RETURN_IF_ERROR(ReadInto(operands(i)[k].value,
                                  AddSlot(absl::StrCat("Operand", k), desc_.mutable_inputs())));
    if (!IsInPlace(name) || operands(i)[k].value == kNoValue) continue;
    // Any of them may be written.
    WEFT_RETURN_IF_ERROR(ReadInto(
        operands(i)[k].value, AddSlot(absl::StrCat("Operand", k, "Out"), desc_.mutable_outputs())));
    for (const VarIndex var : VariablesOf(operands(i)[k].value)) {
      if (vars_[var].block != vars_.block()) overwritten_.push_back(var);
    }
  }
  for (const Attribute& attribute : attributes_) {
    WEFT_RETURN_IF_ERROR(attrs_.Convert(attribute, nullptr));
  }
  for (uint32_t r = 0; r < op(i).num_results; ++r) {
    WEFT_RETURN_IF_ERROR(AddResult(i, r, nullptr, absl::StrCat("Result", r)));
  }
  return absl::OkStatus();
}

absl::Status Translator::Add(uint32_t i) {
  attrs_.Add(kOpRoleAttr, pb::INT)->set_i(training_.roles[i]);
  pb::OpDesc::Attr* pairs = nullptr;
  auto next =
      std::lower_bound(pairs_.begin(), pairs_.end(), i,
                       [](const Training::Pair& pair, uint32_t op) { return pair.op < op; });
  for (; next != pairs_.end() && next->op == i; ++next) {
    const Training::Pair& pair = *next;
    if (vars_.Of(pair.param) == kNoVar || vars_.Of(pair.grad) == kNoVar) continue;
    if (pairs == nullptr) pairs = attrs_.Add(kOpRoleVarAttr, pb::STRINGS);
    pairs->add_strings(vars_[vars_.Of(pair.param)].name);
    pairs->add_strings(vars_[vars_.Of(pair.grad)].name);
  }
  if (const Attribute* const layer = FindAttribute(kStructName, attributes_)) {
    WEFT_ASSIGN_OR_RETURN(*attrs_.Add("op_namescope", pb::STRING)->mutable_s(), StringOf(*layer));
  }
  blocks_.AddOp(vars_.block(), desc_, i);
  return absl::OkStatus();
}

Translation Translator::Finish() {
  Translation translation;
  // What variables need is in memory of its own.
  document_.file().Unload();
  translation.program = blocks_.Finish(vars_);
  translation.op_of_id = blocks_.TakeOps();
  translation.distributed_params = std::move(distributed_params_);
  std::vector<uint32_t> in_block(vars_.size());
  std::vector<uint32_t> count(document_.blocks().size(), 0);
  for (VarIndex var = 0; var < vars_.size(); ++var) in_block[var] = count[vars_[var].block]++;
  for (size_t v = 0; v < document_.values().size(); ++v) {
    Translation::Declaration& declaration = translation.variable_of_value.emplace_back();
    const VarIndex var = vars_.Of(v);
    if (var == kNoVar) continue;
    declaration = {in_block[var], static_cast<uint32_t>(vars_[var].block)};
  }
  return translation;
}

}  // namespace weft::pir
