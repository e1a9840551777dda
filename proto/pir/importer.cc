#include "proto/pir/importer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/pir/attributes.h"
#include "proto/pir/desc_attributes.h"
#include "proto/pir/op_table.h"
#include "proto/pir/survey.h"
#include "proto/pir/training.h"
#include "proto/pir/variables.h"

namespace weft::pir {
namespace {

constexpr int64_t kPaddle3 = 3003001;
// Appends a field of a message: tag, length, message.
void AppendMessage(int field_number, const std::string& message, std::string* out) {
  const auto varint = [out](uint64_t value) {
    for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
    out->push_back(static_cast<char>(value));
  };
  varint(static_cast<uint64_t>(field_number) << 3 | 2);
  varint(message.size());
  out->append(message);
}

class Importer {
 public:
  Importer(std::shared_ptr<const Document> document, Training training, Survey survey)
      : document_(*document),
        owner_(std::move(document)),
        training_(std::move(training)),
        survey_(std::move(survey)),
        vars_(document_, training_, survey_) {}

  absl::StatusOr<Program> Run() {
    pairs_ = training_.pairs;
    pairs_.insert(pairs_.end(), training_.updates.begin(), training_.updates.end());
    std::stable_sort(pairs_.begin(), pairs_.end(),
                     [](const auto& a, const auto& b) { return a.op < b.op; });
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      WEFT_RETURN_IF_ERROR(Annotate(document_.DebugName(i), Visit(i)));
    }
    return Finish();
  }

 private:
  const DocumentOp& op(uint32_t i) const { return document_.op(i); }
  absl::Span<const Operand> operands(uint32_t i) const { return document_.operands(op(i)); }

  // --- Ops ---------------------------------------------------------------------------------------

  absl::Status Visit(uint32_t i) {
    const absl::string_view name = op(i).name;
    if (name == "p") return VisitParameter(i);
    if (name == "1.data") return VisitData(i);
    if (IsSink(name)) return VisitSink(i);
    if (name == "0.combine") return absl::OkStatus();
    if (name == "0.split") return VisitSplit(i);
    if (IsConstant(name) && !survey_.is_kept[i]) return absl::OkStatus();
    desc_.Clear();
    WEFT_ASSIGN_OR_RETURN(attributes_, ReadAttributes(op(i).attrs));
    if (name == "1.full_int_array") {
      WEFT_RETURN_IF_ERROR(VisitIntegers(i));
    } else if (Translates(document_, i) && HasXShape(i)) {
      WEFT_RETURN_IF_ERROR(Translate(i, *FindRule(name)));
    } else {
      WEFT_RETURN_IF_ERROR(Keep(i));
    }
    return Add(i);
  }

  absl::Status VisitParameter(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const Parameter parameter, ReadParameter(op(i)));
    if (op(i).num_results != 1) return absl::InvalidArgumentError("expected one result");
    const VarIndex var = vars_.Named(parameter.name);
    WEFT_RETURN_IF_ERROR(vars_.Define(op(i).first_result, var, /*overwrites=*/false));
    vars_[var].persistable = parameter.persistable;
    vars_[var].is_parameter = parameter.is_parameter;
    vars_[var].stop_gradient = parameter.stop_gradient;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Flag(uint32_t i, absl::string_view name, uint32_t result) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                          ReadAttributes(op(i).result_attrs));
    const Attribute* const attribute = FindAttribute(name, attributes);
    if (attribute == nullptr) return false;
    WEFT_ASSIGN_OR_RETURN(const std::vector<bool> flags, FlagsOf(*attribute));
    if (flags.size() == op(i).num_results) return bool{flags[result]};
    return absl::InvalidArgumentError(absl::StrCat("OA: expected a value of ", name,
                                                   " for each of ", op(i).num_results,
                                                   " results, found ", flags.size()));
  }

  absl::Status VisitData(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op(i).attrs));
    const Attribute* const name = FindAttribute("name", attributes);
    if (name == nullptr || op(i).num_results != 1) {
      return absl::InvalidArgumentError("expected an attribute name and one result");
    }
    WEFT_ASSIGN_OR_RETURN(const std::string text, StringOf(*name));
    const VarIndex var = vars_.Named(text);
    WEFT_RETURN_IF_ERROR(vars_.Define(op(i).first_result, var, /*overwrites=*/false));
    WEFT_ASSIGN_OR_RETURN(const bool is_persistable, Flag(i, "persistable", 0));
    WEFT_ASSIGN_OR_RETURN(const bool stops_gradient, Flag(i, "stop_gradient", 0));
    vars_[var].persistable = is_persistable;
    vars_[var].stop_gradient = stops_gradient;
    if (!is_persistable) vars_[var].need_check_feed = true;
    return absl::OkStatus();
  }

  // Names the variable of its operand; if that has another name, copies it.
  absl::Status VisitSink(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, SinkName(document_, i));
    const ValueIndex value = operands(i)[0].value;
    WEFT_ASSIGN_OR_RETURN(const VarIndex from, vars_.Read(value));
    const bool is_parameter = op(i).name == "0.set_parameter";
    const VarIndex var = vars_.Named(name);
    vars_[var].persistable = true;
    if (is_parameter) vars_[var].is_parameter = true;
    if (var == from) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const ValueType type, vars_.TypeOf(value));
    vars_.Overwrite(var);
    if (!vars_[var].has_type) vars_[var].SetType(type);
    desc_.Clear();
    desc_.set_type("assign");
    AddArgument("X", from, desc_.mutable_inputs());
    AddArgument("Out", var, desc_.mutable_outputs());
    attributes_.clear();
    return Add(i);
  }

  absl::Status VisitSplit(uint32_t i) {
    if (op(i).num_operands != 1 || operands(i)[0].value == kNoValue) {
      return absl::InvalidArgumentError("expected one operand");
    }
    const auto members = members_.find(operands(i)[0].value);
    // Of what 0.combine has just made, too.
    std::vector<VarIndex> vars;
    const uint32_t maker = document_.value(operands(i)[0].value).op;
    if (members != members_.end()) {
      vars = members->second;
    } else if (maker != kNoOp && op(maker).name == "0.combine") {
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

  using Slots = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;

  void AddArgument(absl::string_view slot, VarIndex var, Slots* slots) {
    AddSlot(slot, slots)->add_arguments(vars_[var].name);
  }

  static pb::OpDesc::Var* AddSlot(absl::string_view slot, Slots* slots) {
    pb::OpDesc::Var* const added = slots->Add();
    added->set_parameter(std::string(slot));
    return added;
  }

  absl::Status ReadInto(ValueIndex value, pb::OpDesc::Var* slot) {
    if (value == kNoValue) return absl::OkStatus();
    const uint32_t maker = document_.value(value).op;
    if (maker != kNoOp && op(maker).name == "0.combine") {
      for (const Operand& element : operands(maker)) {
        if (element.value == kNoValue) {
          slot->add_arguments(std::string(kEmptyVarName));
          continue;
        }
        WEFT_ASSIGN_OR_RETURN(const VarIndex var, vars_.Read(element.value));
        slot->add_arguments(vars_[var].name);
      }
      return absl::OkStatus();
    }
    const auto list = members_.find(value);
    if (list != members_.end()) {
      for (const VarIndex var : list->second) {
        slot->add_arguments(var == kNoVar ? std::string(kEmptyVarName) : vars_[var].name);
      }
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const VarIndex var, vars_.Read(value));
    slot->add_arguments(vars_[var].name);
    return absl::OkStatus();
  }

  // By a rule of the table.
  absl::Status Translate(uint32_t i, const OpRule& rule) {
    desc_.set_type(std::string(rule.desc));
    bool reduces_all = false;
    for (uint32_t k = 0; k < op(i).num_operands; ++k) {
      const OperandRule& operand = rule.operands[k];
      const ValueIndex value = operands(i)[k].value;
      if (operand.kind == OperandRule::Kind::kDropped) continue;
      if (operand.kind == OperandRule::Kind::kConstant) {
        WEFT_RETURN_IF_ERROR(attrs_.AddConstant(value, operand));
        if (operand.target == "dim") reduces_all = desc_.attrs().rbegin()->ints().empty();
        continue;
      }
      WEFT_RETURN_IF_ERROR(ReadInto(value, AddSlot(operand.target, desc_.mutable_inputs())));
    }
    for (const Attribute& attribute : attributes_) {
      WEFT_RETURN_IF_ERROR(attrs_.Convert(attribute, &rule));
    }
    WEFT_RETURN_IF_ERROR(attrs_.Derive(i, rule, attributes_, reduces_all));
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      WEFT_RETURN_IF_ERROR(AddResult(i, r, &rule, rule.results[r].slot));
    }
    return rule.has_xshape ? AddXShape(i) : absl::OkStatus();
  }

  absl::Status AddResult(uint32_t i, uint32_t r, const OpRule* rule, absl::string_view slot) {
    const ValueIndex value = op(i).first_result + r;
    const int in_place_of = rule == nullptr ? -1 : rule->results[r].in_place_of;
    WEFT_ASSIGN_OR_RETURN(const ValueType type, vars_.TypeOf(value));
    if (type.kind == ValueType::Kind::kNull) {
      if (absl::EndsWith(slot, kGradSuffix)) AddSlot(slot, desc_.mutable_outputs());
      return absl::OkStatus();
    }
    pb::OpDesc::Var* const out = AddSlot(slot, desc_.mutable_outputs());
    if (type.kind == ValueType::Kind::kList) return AddList(i, r, type.list_size, out);
    VarIndex var = kNoVar;
    if (in_place_of >= 0 && operands(i)[in_place_of].value != kNoValue) {
      WEFT_ASSIGN_OR_RETURN(var, vars_.Read(operands(i)[in_place_of].value));
      WEFT_RETURN_IF_ERROR(vars_.Define(value, var, /*overwrites=*/true));
    } else {
      const auto named = survey_.name_of_value.find(value);
      const bool is_again = named != survey_.name_of_value.end() && vars_.HasName(named->second);
      var = named != survey_.name_of_value.end()
                ? vars_.Named(named->second)
                : vars_.New(vars_.NameOf(value, rule != nullptr && op(i).num_results > 1
                                                    ? rule->results[r].name
                                                    : BaseName(op(i).name)));
      WEFT_RETURN_IF_ERROR(vars_.Define(value, var, is_again));
      WEFT_ASSIGN_OR_RETURN(const bool stops_gradient, Flag(i, "stop_gradient", r));
      if (stops_gradient) vars_[var].stop_gradient = true;
    }
    out->add_arguments(vars_[var].name);
    return absl::OkStatus();
  }

  // The variables of a list: those that 0.split takes apart.
  absl::Status AddList(uint32_t i, uint32_t r, size_t size, pb::OpDesc::Var* out) {
    const ValueIndex list = op(i).first_result + r;
    std::vector<VarIndex>& members = members_[list];
    const auto split = survey_.split_of.find(list);
    for (size_t k = 0; k < size; ++k) {
      VarIndex var = kNoVar;
      const bool has_value = split != survey_.split_of.end() && k < op(split->second).num_results;
      const ValueIndex value = has_value ? op(split->second).first_result + k : kNoValue;
      if (has_value) {
        WEFT_ASSIGN_OR_RETURN(const ValueType type, vars_.TypeOf(value));
        if (type.kind == ValueType::Kind::kTensor) {
          var = vars_.New(vars_.NameOf(value, BaseName(op(i).name)));
          WEFT_RETURN_IF_ERROR(vars_.Define(value, var, /*overwrites=*/false));
        }
      }
      members.push_back(var);
      out->add_arguments(var == kNoVar ? std::string(kEmptyVarName) : vars_[var].name);
    }
    return absl::OkStatus();
  }

  // Forward: a variable of the dims of X, after a 0. Backward: that of the forward op, or of
  // another op on the same X.
  absl::Status AddXShape(uint32_t i) {
    if (IsGradientOp(op(i).name)) {
      const VarIndex xshape = *FindXShape(i);
      AddArgument("XShape", xshape, desc_.mutable_inputs());
      return AddForwardAttributes(forward_of_xshape_.at(xshape));
    }
    const ValueIndex x = operands(i)[0].value;
    WEFT_ASSIGN_OR_RETURN(ValueType type, vars_.TypeOf(x));
    type.dims.insert(type.dims.begin(), 0);
    const VarIndex var =
        vars_.New(absl::StrCat(vars_[vars_.Of(op(i).first_result)].name, "_xshape"));
    vars_[var].SetType(type);
    AddArgument("XShape", var, desc_.mutable_outputs());
    xshape_of_result_[op(i).first_result] = var;
    xshape_of_x_[x] = var;
    forward_of_xshape_[var] = i;
    return absl::OkStatus();
  }

  // In ProgramDesc, a gradient op has the attributes of its forward op.
  absl::Status AddForwardAttributes(uint32_t forward) {
    const OpRule& rule = *FindRule(op(forward).name);
    const auto has = [this](absl::string_view name) {
      return std::any_of(desc_.attrs().begin(), desc_.attrs().end(),
                         [&](const pb::OpDesc::Attr& attr) { return attr.name() == name; });
    };
    for (uint32_t k = 0; k < op(forward).num_operands; ++k) {
      const OperandRule& operand = rule.operands[k];
      if (operand.kind != OperandRule::Kind::kConstant || has(operand.target)) continue;
      WEFT_RETURN_IF_ERROR(attrs_.AddConstant(operands(forward)[k].value, operand));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                          ReadAttributes(op(forward).attrs));
    for (const Attribute& attribute : attributes) {
      if (rule.attrs.empty() && !has(attribute.name)) {
        WEFT_RETURN_IF_ERROR(attrs_.Convert(attribute, &rule));
      }
    }
    return absl::OkStatus();
  }

  absl::optional<VarIndex> FindXShape(uint32_t i) const {
    const OpRule& rule = *FindRule(op(i).name);
    const ValueIndex grad = operands(i)[rule.FindOperand("out_grad")].value;
    const auto of_result = xshape_of_result_.find(training_.primal[grad]);
    if (of_result != xshape_of_result_.end()) return of_result->second;
    const int x = rule.FindOperand("x");
    const auto of_x = x < 0 ? xshape_of_x_.end() : xshape_of_x_.find(operands(i)[x].value);
    if (of_x != xshape_of_x_.end()) return of_x->second;
    return absl::nullopt;
  }

  // False for a gradient op whose forward op is not known.
  bool HasXShape(uint32_t i) const {
    return !FindRule(op(i).name)->has_xshape || !IsGradientOp(op(i).name) ||
           FindXShape(i).has_value();
  }

  // A constant list that an op reads as a tensor.
  absl::Status VisitIntegers(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, attrs_.IntegersOf(i));
    WEFT_ASSIGN_OR_RETURN(const ValueType type, vars_.TypeOf(op(i).first_result));
    desc_.set_type("assign_value");
    attrs_.Add("dtype", pb::INT)->set_i(type.dtype);
    attrs_.Add("shape", pb::INTS)->add_ints(static_cast<int32_t>(ints.size()));
    const bool is_long = type.dtype == pb::VarType::INT64;
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

  // As it is, under Paddle's name.
  absl::Status Keep(uint32_t i) {
    const absl::string_view name = op(i).name;
    if (IsInPlace(name)) {
      return absl::UnimplementedError(
          FindRule(name) == nullptr
              ? "writes operands in place, and which ones is not known: the op is not in the table "
                "of docs/pir.md"
              : "expected the operands and results of the table of docs/pir.md");
    }
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
    }
    for (const Attribute& attribute : attributes_) {
      WEFT_RETURN_IF_ERROR(attrs_.Convert(attribute, nullptr));
    }
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      WEFT_RETURN_IF_ERROR(AddResult(i, r, nullptr, absl::StrCat("Result", r)));
    }
    return absl::OkStatus();
  }

  // Adds desc_, with role, pairs and the layer that made it.
  absl::Status Add(uint32_t i) {
    attrs_.Add(kOpRoleAttr, pb::INT)->set_i(training_.roles[i]);
    while (next_pair_ < pairs_.size() && pairs_[next_pair_].op < i) ++next_pair_;
    pb::OpDesc::Attr* pairs = nullptr;
    for (; next_pair_ < pairs_.size() && pairs_[next_pair_].op == i; ++next_pair_) {
      const Training::Pair& pair = pairs_[next_pair_];
      if (vars_.Of(pair.param) == kNoVar || vars_.Of(pair.grad) == kNoVar) continue;
      if (pairs == nullptr) pairs = attrs_.Add(kOpRoleVarAttr, pb::STRINGS);
      pairs->add_strings(vars_[vars_.Of(pair.param)].name);
      pairs->add_strings(vars_[vars_.Of(pair.grad)].name);
    }
    if (const Attribute* const layer = FindAttribute(kStructName, attributes_)) {
      WEFT_ASSIGN_OR_RETURN(*attrs_.Add("op_namescope", pb::STRING)->mutable_s(), StringOf(*layer));
    }
    AppendMessage(pb::BlockDesc::kOpsFieldNumber, desc_.SerializePartialAsString(), &ops_);
    op_of_id_.push_back(i);
    return absl::OkStatus();
  }

  absl::StatusOr<Program> Finish() {
    pb::BlockDesc head;
    head.set_idx(0);
    head.set_parent_idx(-1);
    std::string block = head.SerializePartialAsString();
    pb::VarDesc desc;
    for (VarIndex var = 0; var < vars_.size(); ++var) {
      vars_[var].WriteTo(&desc);
      AppendMessage(pb::BlockDesc::kVarsFieldNumber, desc.SerializePartialAsString(), &block);
    }
    block += ops_;
    ops_.clear();
    std::string bytes;
    AppendMessage(pb::ProgramDesc::kBlocksFieldNumber, block, &bytes);
    block.clear();
    pb::ProgramDesc version;
    version.mutable_version()->set_version(kPaddle3);
    bytes += version.SerializePartialAsString();
    WEFT_ASSIGN_OR_RETURN(Program program, Program::Parse(std::move(bytes)));
    auto import = std::make_shared<Import>();
    import->document = owner_;
    import->op_of_id = std::move(op_of_id_);
    for (OpId id : program.block(0).ops()) {
      import->begin_of_id.push_back(program.op(id).bytes().data());
    }
    import->variable_of_value.resize(document_.values().size());
    for (size_t v = 0; v < document_.values().size(); ++v) {
      if (vars_.Of(v) == kNoVar) continue;
      import->variable_of_value[v] = program.FindSymbol(vars_[vars_.Of(v)].name);
    }
    program.set_origin(std::move(import));
    return program;
  }

  const Document& document_;
  std::shared_ptr<const Document> owner_;
  const Training training_;
  const Survey survey_;

  Variables vars_;
  absl::flat_hash_map<ValueIndex, std::vector<VarIndex>> members_;  // of lists that ops make
  absl::flat_hash_map<ValueIndex, VarIndex> xshape_of_result_, xshape_of_x_;
  absl::flat_hash_map<VarIndex, uint32_t> forward_of_xshape_;

  std::vector<Training::Pair> pairs_;  // in the order of ops
  size_t next_pair_ = 0;
  pb::OpDesc desc_;  // of the op that is visited
  DescAttributes attrs_{document_, &desc_};
  std::vector<Attribute> attributes_;  // of the same
  std::string ops_;                    // fields of the block
  std::vector<uint32_t> op_of_id_;
};

}  // namespace

absl::StatusOr<Program> ImportProgram(std::shared_ptr<const Document> document) {
  if (!document->trainable()) {
    return absl::InvalidArgumentError(
        "a model for inference (trainable is false): it has no backward ops, and nothing in it is "
        "persistable; write the training program with tools/paddle/export_program.py, or with "
        "core.serialize_pir_program(program, path, True, False, True)");
  }
  WEFT_ASSIGN_OR_RETURN(Training training, FindTraining(*document));
  WEFT_ASSIGN_OR_RETURN(Survey survey, SurveyOf(*document));
  return Importer(std::move(document), std::move(training), std::move(survey)).Run();
}

const Import* ImportOf(const Program& program) {
  return dynamic_cast<const Import*>(program.origin().get());
}

}  // namespace weft::pir
