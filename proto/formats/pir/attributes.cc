#include "proto/formats/pir/attributes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pir/json_cursor.h"

namespace weft::pir {
namespace {

std::string Found(absl::string_view data) { return absl::Utf8SafeCHexEscape(data.substr(0, 64)); }

absl::Status Expected(const Attribute& attribute, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", absl::Utf8SafeCHexEscape(attribute.name), ": expected ", what,
                   ", found ", attribute.kind, " ", Found(attribute.data)));
}

absl::Status Expected(absl::string_view subject, absl::string_view what, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(subject, ": expected ", what, ", found ", Found(found)));
}

bool ReadName(JsonCursor* in, absl::string_view* name) {
  return in->ReadString(name) && (name->find('\\') == absl::string_view::npos ||
                                  in->Fail("a name without escapes", Found(*name), name->data()));
}

absl::StatusOr<std::vector<Attribute>> ReadElements(const Attribute& array) {
  std::vector<Attribute> elements;
  if (array.kind != "0.a_array") return Expected(array, "a list of values (0.a_array)");
  JsonCursor in(array.data);
  in.ReadArray([&] {
    elements.push_back({array.name, "", ""});
    return ReadTyped(&in, &elements.back().kind, &elements.back().data);
  });
  if (!in.ok()) return Expected(array, "a list of values");
  return elements;
}

absl::StatusOr<std::vector<int64_t>> PlainInts(const Attribute& attribute) {
  std::vector<int64_t> ints;
  JsonCursor in(attribute.data);
  in.ReadArray([&] { return in.ReadInteger(&ints.emplace_back()); });
  if (!in.ok()) return Expected(attribute, "a list of integers");
  return ints;
}

template <typename T>
bool Fits(int64_t value) {
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

absl::StatusOr<int64_t> Fitting(int64_t value, pb::VarType::Type dtype,
                                const Attribute& attribute) {
  const bool fits = dtype == pb::VarType::BOOL    ? value == 0 || value == 1
                    : dtype == pb::VarType::INT8  ? Fits<int8_t>(value)
                    : dtype == pb::VarType::UINT8 ? Fits<uint8_t>(value)
                    : dtype == pb::VarType::INT16 ? Fits<int16_t>(value)
                    : dtype == pb::VarType::INT32 ? Fits<int32_t>(value)
                                                  : dtype == pb::VarType::INT64;
  if (fits) return value;
  WEFT_ASSIGN_OR_RETURN(const absl::string_view type, DTypeName(dtype));
  return Expected(attribute, absl::StrCat("an integer that fits ", type));
}

// Attribute types of ProgramDesc by kinds of elements. An empty list has no kind; readers of
// integer lists take either width.
absl::StatusOr<pb::OpDesc::Attr> ArrayToAttr(const Attribute& array) {
  pb::OpDesc::Attr attr;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> elements, ReadElements(array));
  const absl::string_view kind = elements.empty() ? "0.a_i32" : elements[0].kind;
  if (absl::c_any_of(elements, [&](const Attribute& element) { return element.kind != kind; })) {
    return Expected(array, "values of one kind");
  }
  if (kind == "0.a_i32") {
    attr.set_type(pb::INTS);
  } else if (kind == "0.a_i64") {
    attr.set_type(pb::LONGS);
  } else if (kind == "0.a_f32") {
    attr.set_type(pb::FLOATS);
  } else if (kind == "0.a_f64") {
    attr.set_type(pb::FLOAT64S);
  } else if (kind == "0.a_bool") {
    attr.set_type(pb::BOOLEANS);
  } else if (kind == "0.a_str") {
    attr.set_type(pb::STRINGS);
  } else {
    return Expected(array, "numbers, booleans or strings");
  }
  for (const Attribute& element : elements) {
    if (attr.type() == pb::INTS || attr.type() == pb::LONGS) {
      WEFT_ASSIGN_OR_RETURN(const int64_t value, IntOf(element));
      if (attr.type() == pb::LONGS) {
        attr.add_longs(value);
      } else if (Fits<int32_t>(value)) {
        attr.add_ints(static_cast<int32_t>(value));
      } else {
        return Expected(element, "an integer of 32 bits");
      }
    } else if (attr.type() == pb::FLOATS || attr.type() == pb::FLOAT64S) {
      WEFT_ASSIGN_OR_RETURN(const double value, DoubleOf(element));
      if (attr.type() == pb::FLOATS) {
        attr.add_floats(static_cast<float>(value));
      } else {
        attr.add_float64s(value);
      }
    } else if (attr.type() == pb::BOOLEANS) {
      WEFT_ASSIGN_OR_RETURN(const bool value, BoolOf(element));
      attr.add_bools(value);
    } else {
      WEFT_ASSIGN_OR_RETURN(*attr.add_strings(), StringOf(element));
    }
  }
  return attr;
}

}  // namespace

absl::StatusOr<std::vector<Attribute>> ReadAttributes(absl::string_view json) {
  std::vector<Attribute> attributes;
  if (json.empty()) return attributes;
  JsonCursor in(json);
  in.ReadArray([&] {
    Attribute& attribute = attributes.emplace_back();
    bool has_name = false, has_value = false;
    const bool done = in.ReadObject([&](absl::string_view key) {
      if (key == "N") return in.Once(&has_name) && ReadName(&in, &attribute.name);
      if (key != "AT") return in.SkipValue();
      return in.Once(&has_value) && ReadTyped(&in, &attribute.kind, &attribute.data);
    });
    return done && (has_value || in.Fail("a value (AT) of an attribute"));
  });
  if (!in.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attributes: ", in.status().message(), " in ", Found(json)));
  }
  absl::InlinedVector<absl::string_view, 32> names;
  for (const Attribute& attribute : attributes) names.push_back(attribute.name);
  absl::c_sort(names);
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attributes: expected every name once, found ", Found(*twice), " twice"));
  }
  return attributes;
}

const Attribute* FindAttribute(absl::string_view name, const std::vector<Attribute>& attributes) {
  const auto found = absl::c_find_if(
      attributes, [&](const Attribute& attribute) { return attribute.name == name; });
  return found == attributes.end() ? nullptr : &*found;
}

absl::StatusOr<bool> BoolOf(const Attribute& attribute) {
  if (attribute.kind != "0.a_bool" || (attribute.data != "true" && attribute.data != "false")) {
    return Expected(attribute, "true or false (0.a_bool)");
  }
  return attribute.data == "true";
}

absl::StatusOr<int64_t> IntOf(const Attribute& attribute) {
  int64_t value;
  const bool is_narrow = attribute.kind == "0.a_i32";
  if ((!is_narrow && attribute.kind != "0.a_i64") || !absl::SimpleAtoi(attribute.data, &value) ||
      (is_narrow && !Fits<int32_t>(value))) {
    return Expected(attribute, "an integer (0.a_i32, 0.a_i64) that fits");
  }
  return value;
}

absl::StatusOr<double> DoubleOf(const Attribute& attribute) {
  double value;
  const bool is_number = attribute.kind == "0.a_f32" || attribute.kind == "0.a_f64" ||
                         attribute.kind == "0.a_i32" || attribute.kind == "0.a_i64";
  if (!is_number || !absl::SimpleAtod(attribute.data, &value)) {
    return Expected(attribute, "a number (0.a_f32, 0.a_f64)");
  }
  return value;
}

absl::StatusOr<int64_t> IntegerOf(const Attribute& attribute, pb::VarType::Type dtype) {
  int64_t value;
  if (attribute.kind == "0.a_bool") {
    WEFT_ASSIGN_OR_RETURN(const bool flag, BoolOf(attribute));
    value = flag ? 1 : 0;
  } else if (attribute.kind == "0.a_f32" || attribute.kind == "0.a_f64") {
    WEFT_ASSIGN_OR_RETURN(const double number, DoubleOf(attribute));
    constexpr double kBeyond = 9223372036854775808.0;  // 2^63
    if (std::trunc(number) != number || !(number >= -kBeyond && number < kBeyond)) {
      return Expected(attribute, "an integer");
    }
    value = static_cast<int64_t>(number);
  } else {
    WEFT_ASSIGN_OR_RETURN(value, IntOf(attribute));
  }
  return Fitting(value, dtype, attribute);
}

absl::StatusOr<std::vector<int64_t>> IntegersOf(const Attribute& attribute,
                                                pb::VarType::Type dtype) {
  std::vector<int64_t> integers;
  if (attribute.kind == "1.a_intarray") {
    WEFT_ASSIGN_OR_RETURN(integers, PlainInts(attribute));
    for (const int64_t value : integers) {
      WEFT_RETURN_IF_ERROR(Fitting(value, dtype, attribute).status());
    }
    return integers;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> elements, ReadElements(attribute));
  for (const Attribute& element : elements) {
    WEFT_ASSIGN_OR_RETURN(integers.emplace_back(), IntegerOf(element, dtype));
  }
  return integers;
}

absl::StatusOr<std::string> StringOf(const Attribute& attribute) {
  JsonCursor in(attribute.data);
  absl::string_view text;
  if (attribute.kind != "0.a_str" || !in.ReadString(&text)) {
    return Expected(attribute, "a string (0.a_str)");
  }
  return JsonUnescape(text);
}

absl::StatusOr<std::vector<double>> DoublesOf(const Attribute& attribute) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> elements, ReadElements(attribute));
  std::vector<double> values;
  for (const Attribute& element : elements) {
    WEFT_ASSIGN_OR_RETURN(const double value, DoubleOf(element));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::vector<bool>> FlagsOf(const Attribute& attribute) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> elements, ReadElements(attribute));
  std::vector<bool> flags;
  for (const Attribute& element : elements) {
    WEFT_ASSIGN_OR_RETURN(const bool value, BoolOf(element));
    flags.push_back(value);
  }
  return flags;
}

absl::StatusOr<absl::optional<pb::VarType::Type>> DTypeOf(const Attribute& attribute) {
  JsonCursor in(attribute.data);
  absl::string_view name;
  if (attribute.kind == "1.a_dtype" && in.ReadString(&name)) {
    const absl::optional<pb::VarType::Type> dtype = DTypeOfName(name);
    if (dtype.has_value()) return dtype;
    if (absl::StartsWithIgnoreCase(name, "undefined")) return absl::optional<pb::VarType::Type>();
  }
  return Expected(attribute, "an element type (1.a_dtype) such as \"float32\"");
}

absl::StatusOr<absl::optional<pb::OpDesc::Attr>> ToAttr(const Attribute& attribute) {
  pb::OpDesc::Attr attr;
  const absl::string_view kind = attribute.kind;
  if (kind == "1.a_place") return absl::optional<pb::OpDesc::Attr>();
  if (kind == "0.a_bool") {
    attr.set_type(pb::BOOLEAN);
    WEFT_ASSIGN_OR_RETURN(const bool value, BoolOf(attribute));
    attr.set_b(value);
  } else if (kind == "0.a_i32") {
    attr.set_type(pb::INT);
    WEFT_ASSIGN_OR_RETURN(const int64_t value, IntOf(attribute));
    attr.set_i(static_cast<int32_t>(value));
  } else if (kind == "0.a_i64") {
    attr.set_type(pb::LONG);
    WEFT_ASSIGN_OR_RETURN(const int64_t value, IntOf(attribute));
    attr.set_l(value);
  } else if (kind == "0.a_f32" || kind == "0.a_f64") {
    WEFT_ASSIGN_OR_RETURN(const double value, DoubleOf(attribute));
    attr.set_type(kind == "0.a_f32" ? pb::FLOAT : pb::FLOAT64);
    if (kind == "0.a_f32") {
      attr.set_f(static_cast<float>(value));
    } else {
      attr.set_float64(value);
    }
  } else if (kind == "0.a_str") {
    attr.set_type(pb::STRING);
    WEFT_ASSIGN_OR_RETURN(*attr.mutable_s(), StringOf(attribute));
  } else if (kind == "1.a_intarray") {
    attr.set_type(pb::LONGS);
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> values, PlainInts(attribute));
    for (const int64_t value : values) attr.add_longs(value);
  } else if (kind == "1.a_dtype") {
    attr.set_type(pb::INT);
    WEFT_ASSIGN_OR_RETURN(const absl::optional<pb::VarType::Type> dtype, DTypeOf(attribute));
    attr.set_i(dtype.has_value() ? static_cast<int>(*dtype) : -1);
  } else if (kind == "0.a_array") {
    WEFT_ASSIGN_OR_RETURN(attr, ArrayToAttr(attribute));
  } else {
    return Expected(attribute, "a number, boolean, string, element type, place or list of them");
  }
  attr.set_name(std::string(attribute.name));
  return absl::make_optional(std::move(attr));
}

absl::StatusOr<Parameter> ReadParameter(const DocumentOp& op) {
  Parameter parameter;
  bool* const kinds[] = {&parameter.is_distributed, &parameter.is_parameter, &parameter.need_clip};
  bool* const flags[] = {&parameter.persistable, &parameter.stop_gradient, &parameter.trainable};
  absl::string_view name;
  size_t kind = 0, flag = 0;
  const auto read_flag = [](JsonCursor* in, bool* value) {
    int64_t number;
    if (!in->ReadInteger(&number)) return false;
    *value = number != 0;
    return number == 0 || number == 1 || in->Fail("0 or 1");
  };
  JsonCursor attrs(op.attrs);
  attrs.ReadArray([&] {
    if (kind < 3) return read_flag(&attrs, kinds[kind++]);
    return kind++ == 3 ? attrs.ReadString(&name) : attrs.Fail("four attributes of a parameter");
  });
  if (!attrs.ok() || kind != 4) {
    return Expected("A", "[is_distributed, is_parameter, need_clip, name]", op.attrs);
  }
  JsonCursor result_attrs(op.result_attrs);
  result_attrs.ReadArray([&] {
    if (flag < 3) return read_flag(&result_attrs, flags[flag++]);
    return result_attrs.Fail("three attributes of the result");
  });
  if (!result_attrs.ok() || flag != 3) {
    return Expected("OA", "[persistable, stop_gradient, trainable]", op.result_attrs);
  }
  WEFT_ASSIGN_OR_RETURN(parameter.name, JsonUnescape(name));
  return parameter;
}

}  // namespace weft::pir
