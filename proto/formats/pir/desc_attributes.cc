#include "proto/formats/pir/desc_attributes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ops/schema/op_schema.h"
#include "proto/formats/pir/dataflow.h"
#include "proto/op_role.h"

namespace weft::pir {
namespace {

bool IsExactFloat(int64_t value) {
  constexpr float kBeyond = 9223372036854775808.0f;  // 2^63
  const float number = static_cast<float>(value);
  return number < kBeyond && static_cast<int64_t>(number) == value;
}

}  // namespace

pb::OpDesc::Attr* DescAttributes::Add(absl::string_view name, pb::AttrType type) {
  pb::OpDesc::Attr* const attr = desc_->add_attrs();
  attr->set_name(std::string(name));
  attr->set_type(type);
  return attr;
}

absl::Status DescAttributes::Convert(const Attribute& attribute, const OpRule* rule) {
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
  if (rule != nullptr && attr->type() == pb::FLOAT64S) {
    attr->set_type(pb::FLOATS);
    for (const double value : attr->float64s()) attr->add_floats(static_cast<float>(value));
    attr->clear_float64s();
  }
  *desc_->add_attrs() = *std::move(attr);
  return absl::OkStatus();
}

absl::Status DescAttributes::AddConstant(ValueIndex value, const OperandRule& operand) {
  pb::OpDesc::Attr* const attr = Add(operand.target, operand.type);
  const bool is_list = operand.type == pb::INTS || operand.type == pb::LONGS;
  if (!is_list) {
    WEFT_ASSIGN_OR_RETURN(const double number, ConstantOf(document_, value));
    if (operand.type == pb::STRING) {  // a number of 64 bits
      attr->set_s(absl::StrFormat("%.17g", number));
      return absl::OkStatus();
    }
    if (operand.type == pb::BOOLEAN) {
      attr->set_b(number != 0);
      return absl::OkStatus();
    }
    if (operand.type == pb::FLOAT) {
      attr->set_f(static_cast<float>(number));
      return CheckExact(value, operand);
    }
    const bool fits = number >= -2147483648.0 && number <= 2147483647.0;
    const auto integer = fits ? static_cast<int32_t>(number) : 0;
    if (operand.type == pb::INT) {
      attr->set_i(integer);
    } else {
      attr->set_l(integer);
    }
    if (fits && integer == number) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("operand ", operand.name, ": expected an integer, found ", number));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, IntegersOf(document_.value(value).op));
  // A slice up to the end has the largest integer of 64 bits.
  const bool is_bound = operand.target == "starts" || operand.target == "ends";
  constexpr int64_t kLowest = std::numeric_limits<int32_t>::min();
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  for (const int64_t number : ints) {
    if (operand.type == pb::LONGS) {
      attr->add_longs(number);
      continue;
    }
    const int64_t bounded = std::clamp(number, kLowest, kLargest);
    if (bounded != number && !is_bound) {
      return absl::InvalidArgumentError(
          absl::StrCat("operand ", operand.name, ": expected integers of 32 bits, found ", number));
    }
    attr->add_ints(static_cast<int32_t>(bounded));
  }
  return absl::OkStatus();
}

absl::Status DescAttributes::CheckExact(ValueIndex value, const OperandRule& operand) const {
  WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(value));
  if (!IsIntegerType(type.dtype)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Attribute attribute, ValueAttribute(document_.value(value).op));
  const absl::StatusOr<int64_t> integer = IntegerOf(attribute, type.dtype);
  if (integer.ok() && IsExactFloat(*integer)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("operand ", operand.name,
                   ": expected an integer that a float holds, as ProgramDesc has one "
                   "there, found ",
                   attribute.data.substr(0, 64)));
}

absl::StatusOr<Attribute> DescAttributes::ValueAttribute(uint32_t maker) const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                        ReadAttributes(document_.op(maker).attrs));
  const Attribute* const value = FindAttribute("value", attributes);
  if (value == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(document_.DebugName(maker), ": expected an attribute value, found none"));
  }
  return *value;
}

absl::StatusOr<std::vector<int64_t>> DescAttributes::IntegersOf(uint32_t maker) const {
  WEFT_ASSIGN_OR_RETURN(const Attribute value, ValueAttribute(maker));
  WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(document_.op(maker).first_result));
  if (type.dtype == pb::VarType::INT32 || type.dtype == pb::VarType::INT64) {
    return weft::pir::IntegersOf(value, type.dtype);
  }
  return absl::UnimplementedError(
      absl::StrCat(document_.DebugName(maker), ": expected integers of 32 or 64 bits"));
}

absl::Status DescAttributes::Derive(uint32_t i, const OpRule& rule,
                                    const std::vector<Attribute>& attributes) {
  if (absl::StartsWith(rule.desc, "reduce_")) {
    bool reduces_all = false;
    for (const pb::OpDesc::Attr& attr : desc_->attrs()) {
      if (attr.name() == "dim") reduces_all = attr.ints().empty() && attr.longs().empty();
    }
    bool given = false;
    for (pb::OpDesc::Attr& attr : *desc_->mutable_attrs()) {
      if (attr.name() != "reduce_all") continue;
      given = true;
      attr.set_b(attr.b() || reduces_all);
    }
    if (!given) Add("reduce_all", pb::BOOLEAN)->set_b(reduces_all);
  }
  // Data orders a collective and the ops around it, as one stream would.
  const OpSchema* const schema = FindOpSchema(rule.desc);
  if (schema != nullptr && schema->Has(Trait::kCollective) &&
      schema->FindAttr("use_calc_stream") != nullptr) {
    Add("use_calc_stream", pb::BOOLEAN)->set_b(true);
  }
  if (rule.desc == "cast") {
    WEFT_ASSIGN_OR_RETURN(const ValueType type,
                          TypeOf(document_.operands(document_.op(i))[0].value));
    Add("in_dtype", pb::INT)->set_i(type.dtype);
  }
  // An empty list has no kind in PIR.
  for (pb::OpDesc::Attr& attr : *desc_->mutable_attrs()) {
    if (attr.name() == "scale" && attr.type() == pb::INTS && attr.ints().empty()) {
      attr.set_type(pb::FLOATS);
    }
  }
  if (rule.pir == "1.unstack_grad") Add("num", pb::INT)->set_i(desc_->inputs(0).arguments_size());
  if (rule.pir == "1.crop_grad") {  // only the forward op has it
    WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(OperandOf(document_, i, 1)));
    pb::OpDesc::Attr* const shape = Add("shape", pb::INTS);
    for (const int64_t dim : type.dims) shape->add_ints(static_cast<int32_t>(dim));
  }
  if (rule.pir == "1.gumbel_softmax_grad") WEFT_RETURN_IF_ERROR(AddGumbelAttributes(i));
  if (rule.pir == "1.triu" || rule.pir == "1.triu_grad") Add("lower", pb::BOOLEAN)->set_b(false);
  if (rule.pir == "1.full") return AddFill(i);
  if (rule.desc == "assign_value") WEFT_RETURN_IF_ERROR(AddValues(i, attributes));
  if (rule.pir == "1.full_like") return FillIfKnown(i);
  if (rule.pir == "1.set_value" || rule.pir == "1.set_value_") return AddScalars(i, attributes);
  return absl::OkStatus();
}

// The gradient op has them in ProgramDesc alone.
absl::Status DescAttributes::AddGumbelAttributes(uint32_t i) {
  const uint32_t forward = MakerOf(document_, OperandOf(document_, i, 0));
  if (forward == kNoOp || document_.op(forward).name != "1.gumbel_softmax") return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                        ReadAttributes(document_.op(forward).attrs));
  for (const char* const name : {"hard", "temperature"}) {
    const Attribute* const attribute = FindAttribute(name, attributes);
    if (attribute != nullptr) WEFT_RETURN_IF_ERROR(Convert(*attribute, nullptr));
  }
  return absl::OkStatus();
}

// A text as well where a float does not hold the value.
absl::Status DescAttributes::AddFill(uint32_t i) {
  const ValueIndex result = document_.op(i).first_result;
  WEFT_ASSIGN_OR_RETURN(const double value, ConstantOf(document_, result));
  WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(result));
  Add("value", pb::FLOAT)->set_f(static_cast<float>(value));
  if (IsIntegerType(type.dtype) && std::trunc(value) == value) {  // Paddle truncates others
    WEFT_ASSIGN_OR_RETURN(const Attribute attribute, ValueAttribute(i));
    WEFT_ASSIGN_OR_RETURN(const int64_t integer, IntegerOf(attribute, type.dtype));
    if (!IsExactFloat(integer)) Add("str_value", pb::STRING)->set_s(absl::StrCat(integer));
  } else if (type.dtype != pb::VarType::FP32 && std::isfinite(value) &&
             static_cast<double>(static_cast<float>(value)) != value) {
    Add("str_value", pb::STRING)->set_s(absl::StrFormat("%.17g", value));
  }
  return absl::OkStatus();
}

// ProgramDesc has an attribute for the values of each element type.
absl::Status DescAttributes::AddValues(uint32_t i, const std::vector<Attribute>& attributes) {
  const Attribute* const attribute = FindAttribute("values", attributes);
  if (attribute == nullptr) return absl::InvalidArgumentError("expected an attribute values");
  WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(document_.op(i).first_result));
  const bool is_long = type.dtype == pb::VarType::INT64;
  const bool is_bool = type.dtype == pb::VarType::BOOL;
  if (is_long || is_bool || type.dtype == pb::VarType::INT32) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                          weft::pir::IntegersOf(*attribute, type.dtype));
    pb::OpDesc::Attr* const attr = Add(is_long   ? "int64_values"
                                       : is_bool ? "bool_values"
                                                 : "int32_values",
                                       is_long ? pb::LONGS : pb::INTS);
    for (const int64_t value : values) {
      if (is_long) {
        attr->add_longs(value);
      } else {
        attr->add_ints(static_cast<int32_t>(value));
      }
    }
    return absl::OkStatus();
  }
  const bool is_double = type.dtype == pb::VarType::FP64;
  if (!is_double && type.dtype != pb::VarType::FP32) {
    return absl::UnimplementedError("expected values of bool, int32, int64, fp32 or fp64");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, DoublesOf(*attribute));
  pb::OpDesc::Attr* const attr =
      Add(is_double ? "fp64_values" : "fp32_values", is_double ? pb::FLOAT64S : pb::FLOATS);
  for (const double value : values) {
    if (is_double) {
      attr->add_float64s(value);
    } else {
      attr->add_floats(static_cast<float>(value));
    }
  }
  return absl::OkStatus();
}

absl::Status DescAttributes::AddScalars(uint32_t i, const std::vector<Attribute>& attributes) {
  const Attribute* const attribute = FindAttribute("values", attributes);
  if (attribute == nullptr) return absl::InvalidArgumentError("expected an attribute values");
  WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(document_.op(i).first_result));
  pb::OpDesc::Attr* const attr = Add("values", pb::SCALARS);
  if (IsIntegerType(type.dtype) || type.dtype == pb::VarType::BOOL) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                          weft::pir::IntegersOf(*attribute, type.dtype));
    for (const int64_t value : values) {
      pb::Scalar* const scalar = attr->add_scalars();
      scalar->set_type(pb::Scalar::LONG);
      scalar->set_i(value);
    }
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, DoublesOf(*attribute));
  for (const double value : values) {
    pb::Scalar* const scalar = attr->add_scalars();
    scalar->set_type(pb::Scalar::FLOAT64);
    scalar->set_r(value);
  }
  return absl::OkStatus();
}

// With known dims, the gradient of a loss is a fill_constant, as Paddle writes it in ProgramDesc.
absl::Status DescAttributes::FillIfKnown(uint32_t i) {
  WEFT_ASSIGN_OR_RETURN(const ValueType type, TypeOf(document_.op(i).first_result));
  if (type.kind != ValueType::Kind::kTensor ||
      std::any_of(type.dims.begin(), type.dims.end(), [](int64_t d) { return d < 0; })) {
    return absl::OkStatus();
  }
  desc_->set_type("fill_constant");
  desc_->clear_inputs();
  pb::OpDesc::Attr* const shape = Add("shape", pb::LONGS);
  for (const int64_t dim : type.dims) shape->add_longs(dim);
  for (pb::OpDesc::Attr& attr : *desc_->mutable_attrs()) {
    if (attr.name() == "dtype") attr.set_i(type.dtype);
  }
  return absl::OkStatus();
}

}  // namespace weft::pir
