#include "proto/pir/importer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/pir/attributes.h"
#include "proto/pir/op_table.h"
#include "proto/pir/training.h"

namespace weft::pir {
namespace {

constexpr int64_t kPaddle3 = 3003001;
// Attributes that say where an op came from, and roles, which the import finds itself.
constexpr absl::string_view kStructName = "struct_name";

using VarIndex = uint32_t;
constexpr VarIndex kNoVar = 0xffffffffu;

// A declaration to be written. Takes a tenth of the memory of a VarDesc.
struct Variable {
  std::string name;
  absl::InlinedVector<int64_t, 4> dims;
  pb::VarType::Type dtype = pb::VarType::FP32;
  bool has_type = false;
  bool persistable = false, is_parameter = false, stop_gradient = false, need_check_feed = false;

  void WriteTo(pb::VarDesc* desc) const {
    desc->Clear();
    desc->set_name(name);
    desc->mutable_type()->set_type(pb::VarType::LOD_TENSOR);
    pb::VarType::TensorDesc& tensor = *desc->mutable_type()->mutable_lod_tensor()->mutable_tensor();
    tensor.set_data_type(dtype);
    for (const int64_t dim : dims) tensor.add_dims(dim);
    desc->set_persistable(persistable);
    if (need_check_feed) desc->set_need_check_feed(true);
    desc->set_is_parameter(is_parameter);
    desc->set_stop_gradient(stop_gradient);
  }
};

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

bool IsConstant(absl::string_view name) { return name == "1.full" || name == "1.full_int_array"; }

class Importer {
 public:
  explicit Importer(std::shared_ptr<const Document> document)
      : document_(*document), owner_(std::move(document)) {}

  absl::StatusOr<Program> Run() {
    if (!document_.trainable()) {
      return absl::InvalidArgumentError(
          "a model for inference (trainable is false): it has no backward ops, and nothing in it "
          "is "
          "persistable; write the training program with tools/paddle/export_program.py, or with "
          "core.serialize_pir_program(program, path, True, False, True)");
    }
    WEFT_ASSIGN_OR_RETURN(training_, FindTraining(document_));
    pairs_ = training_.pairs;
    pairs_.insert(pairs_.end(), training_.updates.begin(), training_.updates.end());
    std::stable_sort(pairs_.begin(), pairs_.end(),
                     [](const auto& a, const auto& b) { return a.op < b.op; });
    const size_t values = document_.values().size();
    var_of_value_.assign(values, kNoVar);
    version_of_value_.assign(values, 0);
    WEFT_RETURN_IF_ERROR(Survey());
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      WEFT_RETURN_IF_ERROR(Annotate(document_.DebugName(i), Visit(i)));
    }
    return Finish();
  }

 private:
  const DocumentOp& op(uint32_t i) const { return document_.op(i); }
  absl::Span<const Operand> operands(uint32_t i) const { return document_.operands(op(i)); }

  // --- Before the walk ---------------------------------------------------------------------------

  // What later ops say about values: names of the startup program, lists, constants.
  absl::Status Survey() {
    is_kept_.assign(document_.ops().size(), true);
    folded_.assign(document_.values().size(), false);
    std::vector<bool> is_read(document_.values().size(), false);
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (op(i).num_blocks > 0) {
        return absl::UnimplementedError(absl::StrCat(
            document_.DebugName(i),
            ": control flow (1.if, 1.while) is not translated; write the "
            "program in Paddle's old format: FLAGS_enable_pir_api=0 before `import paddle`"));
      }
      const bool translates = Translates(i);
      const OpRule* const rule = translates ? FindRule(op(i).name) : nullptr;
      for (uint32_t k = 0; k < op(i).num_operands; ++k) {
        const ValueIndex value = operands(i)[k].value;
        if (value == kNoValue) continue;
        const bool is_attribute = rule != nullptr && !Overwrites(*rule, k) &&
                                  (rule->operands[k].kind == OperandRule::Kind::kConstant ||
                                   rule->operands[k].kind == OperandRule::Kind::kDropped);
        if (!is_attribute) is_read[value] = true;
        if (is_attribute) folded_[value] = true;
      }
      if (op(i).name == "0.split" && op(i).num_operands == 1) {
        if (operands(i)[0].value != kNoValue) split_of_.emplace(operands(i)[0].value, i);
      }
      if (IsSink(op(i).name)) WEFT_RETURN_IF_ERROR(SurveySink(i));
    }
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (!IsConstant(op(i).name) || op(i).num_results != 1) continue;
      const ValueIndex value = op(i).first_result;
      is_kept_[i] = is_read[value] || !folded_[value];
    }
    return absl::OkStatus();
  }

  static bool Overwrites(const OpRule& rule, uint32_t operand) {
    return std::any_of(rule.results.begin(), rule.results.end(), [&](const ResultRule& result) {
      return result.in_place_of == static_cast<int>(operand);
    });
  }

  static bool IsSink(absl::string_view name) {
    return name == "0.set_parameter" || name == "0.shadow_output";
  }

  absl::StatusOr<std::string> SinkName(uint32_t i) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op(i).attrs));
    const absl::string_view key =
        op(i).name == "0.set_parameter" ? "parameter_name" : "output_name";
    const Attribute* const name = FindAttribute(key, attributes);
    if (name == nullptr || op(i).num_operands != 1 || operands(i)[0].value == kNoValue) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected one operand and an attribute ", key));
    }
    return StringOf(*name);
  }

  // A value is made under the first name that it gets, unless it has one.
  absl::Status SurveySink(uint32_t i) {
    absl::StatusOr<std::string> name = SinkName(i);
    if (!name.ok()) return Annotate(document_.DebugName(i), name.status());
    const ValueIndex value = operands(i)[0].value;
    const uint32_t maker = document_.value(value).op;
    const absl::string_view made_by = maker == kNoOp ? "p" : op(maker).name;
    if (made_by == "p" || made_by == "1.data") return absl::OkStatus();
    name_of_value_.emplace(value, *std::move(name));
    return absl::OkStatus();
  }

  // Whether the table's rule fits: constants where the op of ProgramDesc has attributes, lists
  // where it has lists.
  bool Translates(uint32_t i) const {
    const OpRule* const rule = FindRule(op(i).name);
    if (rule == nullptr || rule->operands.size() != op(i).num_operands ||
        rule->results.size() != op(i).num_results) {
      return false;
    }
    for (uint32_t k = 0; k < op(i).num_operands; ++k) {
      const OperandRule& operand = rule->operands[k];
      const ValueIndex value = operands(i)[k].value;
      const uint32_t maker = value == kNoValue ? kNoOp : document_.value(value).op;
      const absl::string_view made_by = maker == kNoOp ? "" : op(maker).name;
      switch (operand.kind) {
        case OperandRule::Kind::kTensor:
          if (value == kNoValue && !operand.optional) return false;
          break;
        case OperandRule::Kind::kList:
          if (made_by != "0.combine" && !(value == kNoValue && operand.optional)) return false;
          break;
        case OperandRule::Kind::kConstant: {
          const bool is_list = operand.type == pb::INTS || operand.type == pb::LONGS;
          if (made_by != (is_list ? "1.full_int_array" : "1.full")) return false;
          break;
        }
        case OperandRule::Kind::kDropped:
          break;
      }
    }
    return true;
  }

  // --- Variables ---------------------------------------------------------------------------------

  // The variable of that name, new or not.
  VarIndex VarNamed(absl::string_view name) {
    const auto found = vars_by_name_.find(name);
    if (found != vars_by_name_.end()) return found->second;
    const VarIndex var = vars_.size();
    vars_.emplace_back().name = std::string(name);
    vars_by_name_.emplace(vars_.back().name, var);
    return var;
  }

  // A new variable. Its name gets a suffix if it is taken.
  VarIndex NewVar(std::string name) {
    while (vars_by_name_.contains(name)) name += "_";
    return VarNamed(name);
  }

  absl::StatusOr<ValueType> TypeOf(ValueIndex value) const {
    return ReadType(document_.value(value).type);
  }

  // The value is the present content of the variable. In place: what it held is gone.
  absl::Status Define(ValueIndex value, VarIndex var, bool overwrites) {
    versions_.resize(vars_.size(), 0);
    if (overwrites) ++versions_[var];
    var_of_value_[value] = var;
    version_of_value_[value] = versions_[var];
    if (vars_[var].has_type) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(value));
    if (type.kind != ValueType::Kind::kTensor) {
      return absl::UnimplementedError(absl::StrCat("%", document_.value(value).id,
                                                   ": expected a dense tensor, found ",
                                                   document_.value(value).type.substr(0, 64)));
    }
    SetType(type, &vars_[var]);
    return absl::OkStatus();
  }

  static void SetType(const ValueType& type, Variable* var) {
    var->has_type = true;
    var->dtype = type.dtype;
    var->dims.assign(type.dims.begin(), type.dims.end());
  }

  // "fc_0.w_0@GRAD", "matmul_6", "loss_43" (of several results).
  std::string NameOf(uint32_t i, uint32_t result, const OpRule* rule) {
    const ValueIndex value = op(i).first_result + result;
    return NameOf(value, rule != nullptr && op(i).num_results > 1 ? rule->results[result].name
                                                                  : BaseName(op(i).name));
  }
  std::string NameOf(ValueIndex value, absl::string_view stem) {
    const auto named = name_of_value_.find(value);
    if (named != name_of_value_.end()) return named->second;
    const int64_t id = document_.value(value).id;
    const ValueIndex primal = training_.primal[value];
    if (primal == kNoValue || var_of_value_[primal] == kNoVar) return absl::StrCat(stem, "_", id);
    const std::string grad = absl::StrCat(vars_[var_of_value_[primal]].name, kGradSuffix);
    if (training_.is_summand[value] || vars_by_name_.contains(grad)) {
      return absl::StrCat(grad, "@RENAME@", id);
    }
    return grad;
  }

  // The variable of an operand, which must not have been overwritten.
  absl::StatusOr<VarIndex> Read(ValueIndex value) const {
    const VarIndex var = var_of_value_[value];
    if (var == kNoVar) {
      return absl::UnimplementedError(absl::StrCat("reads %", document_.value(value).id, ", ",
                                                   document_.value(value).type.substr(0, 64),
                                                   ": expected a dense tensor"));
    }
    if (version_of_value_[value] != versions_[var]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "reads %", document_.value(value).id, ", the content of variable ", vars_[var].name,
          " that an earlier op has overwritten: expected its result"));
    }
    return var;
  }

  // --- Ops ---------------------------------------------------------------------------------------

  absl::Status Visit(uint32_t i) {
    const absl::string_view name = op(i).name;
    if (name == "p") return VisitParameter(i);
    if (name == "1.data") return VisitData(i);
    if (IsSink(name)) return VisitSink(i);
    if (name == "0.combine") return absl::OkStatus();
    if (name == "0.split") return VisitSplit(i);
    if (IsConstant(name) && !is_kept_[i]) return absl::OkStatus();
    desc_.Clear();
    WEFT_ASSIGN_OR_RETURN(attributes_, ReadAttributes(op(i).attrs));
    if (name == "1.full_int_array") {
      WEFT_RETURN_IF_ERROR(VisitIntegers(i));
    } else if (Translates(i) && HasXShape(i)) {
      WEFT_RETURN_IF_ERROR(Translate(i, *FindRule(name)));
    } else {
      WEFT_RETURN_IF_ERROR(Keep(i));
    }
    return Add(i);
  }

  absl::Status VisitParameter(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const Parameter parameter, ReadParameter(op(i)));
    if (op(i).num_results != 1) return absl::InvalidArgumentError("expected one result");
    const VarIndex var = VarNamed(parameter.name);
    WEFT_RETURN_IF_ERROR(Define(op(i).first_result, var, /*overwrites=*/false));
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
    const VarIndex var = VarNamed(text);
    WEFT_RETURN_IF_ERROR(Define(op(i).first_result, var, /*overwrites=*/false));
    WEFT_ASSIGN_OR_RETURN(const bool is_persistable, Flag(i, "persistable", 0));
    WEFT_ASSIGN_OR_RETURN(const bool stops_gradient, Flag(i, "stop_gradient", 0));
    vars_[var].persistable = is_persistable;
    vars_[var].stop_gradient = stops_gradient;
    if (!is_persistable) vars_[var].need_check_feed = true;
    return absl::OkStatus();
  }

  // Names the variable of its operand; if that has another name, copies it.
  absl::Status VisitSink(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, SinkName(i));
    const ValueIndex value = operands(i)[0].value;
    WEFT_ASSIGN_OR_RETURN(const VarIndex from, Read(value));
    const bool is_parameter = op(i).name == "0.set_parameter";
    const VarIndex var = VarNamed(name);
    vars_[var].persistable = true;
    if (is_parameter) vars_[var].is_parameter = true;
    if (var == from) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(value));
    versions_.resize(vars_.size(), 0);
    ++versions_[var];
    if (!vars_[var].has_type) SetType(type, &vars_[var]);
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
        WEFT_ASSIGN_OR_RETURN(vars.emplace_back(), Read(operand.value));
      }
    }
    if (vars.size() != op(i).num_results) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a list of ", op(i).num_results, " values, found ", vars.size()));
    }
    for (uint32_t r = 0; r < vars.size(); ++r) {
      if (vars[r] == kNoVar) continue;
      WEFT_RETURN_IF_ERROR(Define(op(i).first_result + r, vars[r], /*overwrites=*/false));
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

  pb::OpDesc::Attr* AddAttr(absl::string_view name, pb::AttrType type) {
    pb::OpDesc::Attr* const attr = desc_.add_attrs();
    attr->set_name(std::string(name));
    attr->set_type(type);
    return attr;
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
        WEFT_ASSIGN_OR_RETURN(const VarIndex var, Read(element.value));
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
    WEFT_ASSIGN_OR_RETURN(const VarIndex var, Read(value));
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
        WEFT_RETURN_IF_ERROR(AddConstant(value, operand));
        if (operand.target == "dim") reduces_all = desc_.attrs().rbegin()->ints().empty();
        continue;
      }
      WEFT_RETURN_IF_ERROR(ReadInto(value, AddSlot(operand.target, desc_.mutable_inputs())));
    }
    for (const Attribute& attribute : attributes_) {
      WEFT_RETURN_IF_ERROR(AddAttribute(attribute, &rule));
    }
    WEFT_RETURN_IF_ERROR(AddDerivedAttributes(i, rule, reduces_all));
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      WEFT_RETURN_IF_ERROR(AddResult(i, r, &rule, rule.results[r].slot));
    }
    return rule.has_xshape ? AddXShape(i) : absl::OkStatus();
  }

  absl::Status AddAttribute(const Attribute& attribute, const OpRule* rule) {
    if (attribute.name == kStructName || attribute.name == kOpRoleAttr) return absl::OkStatus();
    absl::string_view name = attribute.name;
    if (rule != nullptr) {
      for (const auto& [from, to] : rule->attrs) {
        if (from != name) continue;
        name = to;
        break;
      }
    }
    if (name.empty()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(absl::optional<pb::OpDesc::Attr> attr, ToAttr(attribute));
    if (!attr.has_value()) return absl::OkStatus();
    if (name != attribute.name) attr->set_name(std::string(name));
    if (rule != nullptr && attr->type() == pb::FLOAT64) {  // ProgramDesc has floats there
      attr->set_type(pb::FLOAT);
      attr->set_f(static_cast<float>(attr->float64()));
      attr->clear_float64();
    }
    *desc_.add_attrs() = *std::move(attr);
    return absl::OkStatus();
  }

  absl::Status AddConstant(ValueIndex value, const OperandRule& operand) {
    pb::OpDesc::Attr* const attr = AddAttr(operand.target, operand.type);
    if (operand.type == pb::FLOAT || operand.type == pb::INT) {
      WEFT_ASSIGN_OR_RETURN(const double number, ConstantOf(document_, value));
      if (operand.type == pb::FLOAT) {
        attr->set_f(static_cast<float>(number));
        return absl::OkStatus();
      }
      const bool fits = number >= -2147483648.0 && number <= 2147483647.0;
      if (fits) attr->set_i(static_cast<int32_t>(number));
      if (fits && attr->i() == number) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("operand ", operand.name, ": expected an integer, found ", number));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, IntegersOf(document_.value(value).op));
    for (const int64_t number : ints) {
      if (operand.type == pb::LONGS) {
        attr->add_longs(number);
        continue;
      }
      // A slice up to the end has the largest integer of 64 bits.
      attr->add_ints(
          static_cast<int32_t>(std::clamp<int64_t>(number, -2147483648LL, 2147483647LL)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int64_t>> IntegersOf(uint32_t maker) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op(maker).attrs));
    const Attribute* const value = FindAttribute("value", attributes);
    if (value == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(document_.DebugName(maker), ": expected an attribute value, found none"));
    }
    return IntsOf(*value);
  }

  // Attributes that ProgramDesc has and PIR derives from other things.
  absl::Status AddDerivedAttributes(uint32_t i, const OpRule& rule, bool reduces_all) {
    if (rule.FindOperand("axis") >= 0 && absl::StartsWith(rule.desc, "reduce_")) {
      bool given = false;
      for (pb::OpDesc::Attr& attr : *desc_.mutable_attrs()) {
        if (attr.name() != "reduce_all") continue;
        given = true;
        attr.set_b(attr.b() || reduces_all);
      }
      if (!given) AddAttr("reduce_all", pb::BOOLEAN)->set_b(reduces_all);
    }
    // Data orders a collective and the ops around it, as one stream would.
    if (rule.desc == "all_reduce" || rule.desc == "broadcast") {
      AddAttr("use_calc_stream", pb::BOOLEAN)->set_b(true);
    }
    if (rule.desc == "cast") {
      WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(operands(i)[0].value));
      AddAttr("in_dtype", pb::INT)->set_i(type.dtype);
    }
    if (rule.pir == "1.full") {
      WEFT_ASSIGN_OR_RETURN(const double value, ConstantOf(document_, op(i).first_result));
      AddAttr("value", pb::FLOAT)->set_f(static_cast<float>(value));
      WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(op(i).first_result));
      if (type.dtype != pb::VarType::FP32 &&
          static_cast<double>(static_cast<float>(value)) != value) {
        AddAttr("str_value", pb::STRING)->set_s(absl::StrCat(value));
      }
    }
    if (rule.pir == "1.assign_value_") WEFT_RETURN_IF_ERROR(AddValues(i));
    if (rule.pir == "1.full_like") return FillIfKnown(i);
    return absl::OkStatus();
  }

  // ProgramDesc has an attribute for the values of each element type.
  absl::Status AddValues(uint32_t i) {
    const Attribute* const attribute = FindAttribute("values", attributes_);
    if (attribute == nullptr) return absl::InvalidArgumentError("expected an attribute values");
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, DoublesOf(*attribute));
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(op(i).first_result));
    const bool is_long = type.dtype == pb::VarType::INT64;
    const bool is_double = type.dtype == pb::VarType::FP64;
    const bool is_int = type.dtype == pb::VarType::INT32 || type.dtype == pb::VarType::BOOL;
    if (!is_long && !is_double && !is_int && type.dtype != pb::VarType::FP32) {
      return absl::UnimplementedError("expected values of bool, int32, int64, fp32 or fp64");
    }
    pb::OpDesc::Attr* const attr = AddAttr(is_long                           ? "int64_values"
                                           : is_double                       ? "fp64_values"
                                           : type.dtype == pb::VarType::BOOL ? "bool_values"
                                           : is_int                          ? "int32_values"
                                                                             : "fp32_values",
                                           is_long     ? pb::LONGS
                                           : is_double ? pb::FLOAT64S
                                           : is_int    ? pb::INTS
                                                       : pb::FLOATS);
    for (const double value : values) {
      if (!is_double && !(std::fabs(value) < (is_int ? 2147483648.0 : 9.2e18)) &&
          (is_long || is_int)) {
        return absl::InvalidArgumentError(
            absl::StrCat("expected integers that fit, found ", value));
      }
      if (is_long) {
        attr->add_longs(static_cast<int64_t>(value));
      } else if (is_double) {
        attr->add_float64s(value);
      } else if (is_int) {
        attr->add_ints(static_cast<int32_t>(value));
      } else {
        attr->add_floats(static_cast<float>(value));
      }
    }
    return absl::OkStatus();
  }

  // With known dims, the gradient of a loss is a fill_constant, as Paddle writes it in ProgramDesc.
  absl::Status FillIfKnown(uint32_t i) {
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(op(i).first_result));
    if (type.kind != ValueType::Kind::kTensor ||
        std::any_of(type.dims.begin(), type.dims.end(), [](int64_t d) { return d < 0; })) {
      return absl::OkStatus();
    }
    desc_.set_type("fill_constant");
    desc_.clear_inputs();
    pb::OpDesc::Attr* const shape = AddAttr("shape", pb::LONGS);
    for (const int64_t dim : type.dims) shape->add_longs(dim);
    for (pb::OpDesc::Attr& attr : *desc_.mutable_attrs()) {
      if (attr.name() == "dtype") attr.set_i(type.dtype);
    }
    return absl::OkStatus();
  }

  absl::Status AddResult(uint32_t i, uint32_t r, const OpRule* rule, absl::string_view slot) {
    const ValueIndex value = op(i).first_result + r;
    const int in_place_of = rule == nullptr ? -1 : rule->results[r].in_place_of;
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(value));
    if (type.kind == ValueType::Kind::kNull) {
      if (absl::EndsWith(slot, kGradSuffix)) AddSlot(slot, desc_.mutable_outputs());
      return absl::OkStatus();
    }
    pb::OpDesc::Var* const out = AddSlot(slot, desc_.mutable_outputs());
    if (type.kind == ValueType::Kind::kList) return AddList(i, r, type.list_size, out);
    VarIndex var = kNoVar;
    if (in_place_of >= 0 && operands(i)[in_place_of].value != kNoValue) {
      WEFT_ASSIGN_OR_RETURN(var, Read(operands(i)[in_place_of].value));
      WEFT_RETURN_IF_ERROR(Define(value, var, /*overwrites=*/true));
    } else {
      const auto named = name_of_value_.find(value);
      const bool is_again = named != name_of_value_.end() && vars_by_name_.contains(named->second);
      var = named != name_of_value_.end() ? VarNamed(named->second) : NewVar(NameOf(i, r, rule));
      WEFT_RETURN_IF_ERROR(Define(value, var, is_again));
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
    const auto split = split_of_.find(list);
    for (size_t k = 0; k < size; ++k) {
      VarIndex var = kNoVar;
      const bool has_value = split != split_of_.end() && k < op(split->second).num_results;
      const ValueIndex value = has_value ? op(split->second).first_result + k : kNoValue;
      if (has_value) {
        WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(value));
        if (type.kind == ValueType::Kind::kTensor) {
          var = NewVar(NameOf(value, BaseName(op(i).name)));
          WEFT_RETURN_IF_ERROR(Define(value, var, /*overwrites=*/false));
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
    WEFT_ASSIGN_OR_RETURN(ValueType type, TypeOf(x));
    type.dims.insert(type.dims.begin(), 0);
    const VarIndex var =
        NewVar(absl::StrCat(vars_[var_of_value_[op(i).first_result]].name, "_xshape"));
    versions_.resize(vars_.size(), 0);
    SetType(type, &vars_[var]);
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
      WEFT_RETURN_IF_ERROR(AddConstant(operands(forward)[k].value, operand));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                          ReadAttributes(op(forward).attrs));
    for (const Attribute& attribute : attributes) {
      if (rule.attrs.empty() && !has(attribute.name)) {
        WEFT_RETURN_IF_ERROR(AddAttribute(attribute, &rule));
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
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, IntegersOf(i));
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(op(i).first_result));
    desc_.set_type("assign_value");
    AddAttr("dtype", pb::INT)->set_i(type.dtype);
    AddAttr("shape", pb::INTS)->add_ints(static_cast<int32_t>(ints.size()));
    const bool is_long = type.dtype == pb::VarType::INT64;
    pb::OpDesc::Attr* const values =
        AddAttr(is_long ? "int64_values" : "int32_values", is_long ? pb::LONGS : pb::INTS);
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
      WEFT_RETURN_IF_ERROR(AddAttribute(attribute, nullptr));
    }
    for (uint32_t r = 0; r < op(i).num_results; ++r) {
      WEFT_RETURN_IF_ERROR(AddResult(i, r, nullptr, absl::StrCat("Result", r)));
    }
    return absl::OkStatus();
  }

  // Adds desc_, with role, pairs and the layer that made it.
  absl::Status Add(uint32_t i) {
    AddAttr(kOpRoleAttr, pb::INT)->set_i(training_.roles[i]);
    while (next_pair_ < pairs_.size() && pairs_[next_pair_].op < i) ++next_pair_;
    pb::OpDesc::Attr* pairs = nullptr;
    for (; next_pair_ < pairs_.size() && pairs_[next_pair_].op == i; ++next_pair_) {
      const Training::Pair& pair = pairs_[next_pair_];
      if (var_of_value_[pair.param] == kNoVar || var_of_value_[pair.grad] == kNoVar) continue;
      if (pairs == nullptr) pairs = AddAttr(kOpRoleVarAttr, pb::STRINGS);
      pairs->add_strings(vars_[var_of_value_[pair.param]].name);
      pairs->add_strings(vars_[var_of_value_[pair.grad]].name);
    }
    if (const Attribute* const layer = FindAttribute(kStructName, attributes_)) {
      WEFT_ASSIGN_OR_RETURN(*AddAttr("op_namescope", pb::STRING)->mutable_s(), StringOf(*layer));
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
    for (const Variable& var : vars_) {
      var.WriteTo(&desc);
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
    import->variable_of_value.resize(var_of_value_.size());
    for (size_t v = 0; v < var_of_value_.size(); ++v) {
      if (var_of_value_[v] == kNoVar) continue;
      import->variable_of_value[v] = program.FindSymbol(vars_[var_of_value_[v]].name);
    }
    program.set_origin(std::move(import));
    return program;
  }

  const Document& document_;
  std::shared_ptr<const Document> owner_;
  Training training_;

  std::vector<bool> is_kept_;  // by op: constants that a tensor slot reads
  std::vector<bool> folded_;   // by value: some op takes it as an attribute
  absl::flat_hash_map<ValueIndex, uint32_t> split_of_;
  absl::flat_hash_map<ValueIndex, std::string> name_of_value_;

  std::deque<Variable> vars_;
  absl::flat_hash_map<absl::string_view, VarIndex> vars_by_name_;
  std::vector<uint32_t> versions_;  // by variable
  std::vector<VarIndex> var_of_value_;
  std::vector<uint32_t> version_of_value_;
  absl::flat_hash_map<ValueIndex, std::vector<VarIndex>> members_;  // of lists that ops make
  absl::flat_hash_map<ValueIndex, VarIndex> xshape_of_result_, xshape_of_x_;
  absl::flat_hash_map<VarIndex, uint32_t> forward_of_xshape_;

  std::vector<Training::Pair> pairs_;  // in the order of ops
  size_t next_pair_ = 0;
  pb::OpDesc desc_;                    // of the op that is visited
  std::vector<Attribute> attributes_;  // of the same
  std::string ops_;                    // fields of the block
  std::vector<uint32_t> op_of_id_;
};

}  // namespace

absl::StatusOr<Program> ImportProgram(std::shared_ptr<const Document> document) {
  return Importer(std::move(document)).Run();
}

const Import* ImportOf(const Program& program) {
  return dynamic_cast<const Import*>(program.origin().get());
}

}  // namespace weft::pir
