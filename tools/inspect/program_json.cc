#include "tools/inspect/program_json.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "tools/inspect/json_number.h"

namespace weft {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using Json = nlohmann::ordered_json;

Json ToJson(const Message& message);

// The value of a field; of element `i` if it is repeated.
Json FieldToJson(const Message& message, const FieldDescriptor& field, int i) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  const auto get = [&](auto one, auto of_many) {
    return repeated ? (reflection.*of_many)(message, &field, i)
                    : (reflection.*one)(message, &field);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberToJson(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberToJson(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(repeated ? reflection.GetRepeatedMessage(message, &field, i)
                             : reflection.GetMessage(message, &field));
  }
  return nullptr;
}

Json UnknownToJson(const UnknownFieldSet& fields) {
  Json list = Json::array();
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    Json entry = {{"field", field.number()}};
    switch (field.type()) {
      case UnknownField::TYPE_VARINT:
        entry["varint"] = field.varint();
        break;
      case UnknownField::TYPE_FIXED32:
        entry["fixed32"] = field.fixed32();
        break;
      case UnknownField::TYPE_FIXED64:
        entry["fixed64"] = field.fixed64();
        break;
      case UnknownField::TYPE_LENGTH_DELIMITED:
        entry["bytes"] = absl::BytesToHexString(field.length_delimited());
        break;
      case UnknownField::TYPE_GROUP:
        entry["group"] = UnknownToJson(field.group());
        break;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json ToJson(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  Json json = Json::object();
  for (const FieldDescriptor* field : fields) {
    if (!field->is_repeated()) {
      json[field->name()] = FieldToJson(message, *field, -1);
      continue;
    }
    Json list = Json::array();
    const int size = reflection.FieldSize(message, field);
    for (int i = 0; i < size; ++i) list.push_back(FieldToJson(message, *field, i));
    json[field->name()] = std::move(list);
  }
  const UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) json["unknown_fields"] = UnknownToJson(unknown);
  return json;
}

}  // namespace

std::string MessageToJson(const Message& message) {
  return JsonText(ToJson(message), /*indent=*/1) + "\n";
}

}  // namespace weft
