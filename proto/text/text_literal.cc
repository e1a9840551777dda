#include "proto/text/text_literal.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::UnknownField;
using ::google::protobuf::UnknownFieldSet;

constexpr int kMaxGroupDepth = 100;

// --- Writing ------------------------------------------------------------------------------------

void AppendUnknownFields(const UnknownFieldSet& fields, bool first, std::string* out) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (!first || i > 0) out->append(", ");
    absl::StrAppend(out, field.number(), ": ");
    switch (field.type()) {
      case UnknownField::TYPE_VARINT:
        absl::StrAppend(out, field.varint());
        break;
      case UnknownField::TYPE_FIXED32:
        absl::StrAppend(out, "fixed32(0x", absl::Hex(field.fixed32()), ")");
        break;
      case UnknownField::TYPE_FIXED64:
        absl::StrAppend(out, "fixed64(0x", absl::Hex(field.fixed64()), ")");
        break;
      case UnknownField::TYPE_LENGTH_DELIMITED:
        AppendQuoted(field.length_delimited(), out);
        break;
      case UnknownField::TYPE_GROUP:
        out->push_back('{');
        AppendUnknownFields(field.group(), /*first=*/true, out);
        out->push_back('}');
        break;
    }
  }
}

// Value `index` of a repeated field; with index -1, the value of a singular one. framework.proto
// has no unsigned fields.
void AppendValue(const Message& message, const FieldDescriptor* field, int index,
                 std::string* out) {
  const Reflection& r = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) -> decltype(auto) {
    return index < 0 ? (r.*singular)(message, field) : (r.*repeated)(message, field, index);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      AppendInt(get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32), out);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      AppendInt(get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64), out);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      AppendFloat(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat), out);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      AppendFloat(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble), out);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      out->append(get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false");
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      out->append(get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)->name());
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      AppendQuoted(get(&Reflection::GetString, &Reflection::GetRepeatedString), out);
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      AppendLiteral(
          index < 0 ? r.GetMessage(message, field) : r.GetRepeatedMessage(message, field, index),
          {}, out);
      break;
    default:
      std::abort();
  }
}

// --- Reading ------------------------------------------------------------------------------------

// `fixed32(0x...)` or `fixed64(0x...)`.
bool ReadFixed(TextLexer* lexer, int number, UnknownFieldSet* fields) {
  const bool is_32_bits = lexer->Next().IsWord("fixed32");
  if (!lexer->Expect('(')) return false;
  uint32_t bits32;
  uint64_t bits64;
  const absl::string_view word = lexer->peek().text;
  if (is_32_bits && ReadHex(word, &bits32)) {
    fields->AddFixed32(number, bits32);
  } else if (!is_32_bits && ReadHex(word, &bits64)) {
    fields->AddFixed64(number, bits64);
  } else {
    return lexer->Fail(is_32_bits ? "32 bits as 0x..." : "64 bits as 0x...");
  }
  lexer->Next();
  return lexer->Expect(')');
}

// `number: value` of an unknown field; the number is the current token.
bool ReadUnknownField(TextLexer* lexer, int depth, UnknownFieldSet* fields) {
  int32_t number;
  if (!ReadNumber(lexer->peek().text, &number) || number < 1 ||
      number > FieldDescriptor::kMaxNumber) {
    return lexer->Fail("a field number");
  }
  lexer->Next();
  if (!lexer->Expect(':')) return false;
  const Token& value = lexer->peek();
  if (value.kind == Token::Kind::kString) {
    return lexer->ExpectString(fields->AddLengthDelimited(number));
  }
  if (value.IsWord("fixed32") || value.IsWord("fixed64")) return ReadFixed(lexer, number, fields);
  if (value.Is('{')) {
    if (depth == kMaxGroupDepth) return lexer->Fail("groups no deeper than 100");
    lexer->Next();
    UnknownFieldSet* group = fields->AddGroup(number);
    return ReadList(lexer, '}', [&] { return ReadUnknownField(lexer, depth + 1, group); });
  }
  uint64_t varint;
  if (value.kind != Token::Kind::kWord || !ReadNumber(value.text, &varint)) {
    return lexer->Fail("the value of an unknown field");
  }
  fields->AddVarint(number, varint);
  lexer->Next();
  return true;
}

bool Read(TextLexer* lexer, bool* value) {
  *value = lexer->peek().IsWord("true");
  return lexer->TryWord("true") || lexer->TryWord("false") || lexer->Fail("true or false");
}
bool Read(TextLexer* lexer, std::string* value) { return lexer->ExpectString(value); }
template <typename T>
bool Read(TextLexer* lexer, T* value) {
  return lexer->ExpectNumber(value);
}

template <typename T>
using Store = void (Reflection::*)(Message*, const FieldDescriptor*, T) const;

// Reads a value, and stores it with `add` if the field is repeated, else with `set`.
template <typename T>
bool ReadAndStore(TextLexer* lexer, const FieldDescriptor* field, Message* message, Store<T> add,
                  Store<T> set) {
  T value;
  if (!Read(lexer, &value)) return false;
  (message->GetReflection()->*(field->is_repeated() ? add : set))(message, field, std::move(value));
  return true;
}

// Adds to a repeated field, or sets a singular one.
bool ReadValue(TextLexer* lexer, const FieldDescriptor* field, Message* message) {
  const Reflection& r = *message->GetReflection();
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return ReadAndStore(lexer, field, message, &Reflection::AddInt32, &Reflection::SetInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return ReadAndStore(lexer, field, message, &Reflection::AddInt64, &Reflection::SetInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ReadAndStore(lexer, field, message, &Reflection::AddFloat, &Reflection::SetFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ReadAndStore(lexer, field, message, &Reflection::AddDouble, &Reflection::SetDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return ReadAndStore(lexer, field, message, &Reflection::AddBool, &Reflection::SetBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return ReadAndStore(lexer, field, message, &Reflection::AddString, &Reflection::SetString);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = field->enum_type()->FindValueByName(std::string(lexer->peek().text));
      if (value == nullptr) {
        return lexer->Fail(absl::StrCat("a value of ", field->enum_type()->name()));
      }
      many ? r.AddEnum(message, field, value) : r.SetEnum(message, field, value);
      lexer->Next();
      return true;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ReadLiteral(lexer,
                         many ? r.AddMessage(message, field) : r.MutableMessage(message, field));
    default:
      std::abort();
  }
}

// `name: value`; the name is the current token.
bool ReadKnownField(TextLexer* lexer, Message* message) {
  const auto* type = message->GetDescriptor();
  const FieldDescriptor* field = type->FindFieldByName(std::string(lexer->peek().text));
  if (field == nullptr) return lexer->Fail(absl::StrCat("a field of ", type->name()));
  const Reflection& r = *message->GetReflection();
  if (field->is_repeated() ? r.FieldSize(*message, field) > 0 : r.HasField(*message, field)) {
    return lexer->Fail(absl::StrCat("each field of ", type->name(), " once"));
  }
  lexer->Next();
  return lexer->Expect(':') && ReadField(lexer, field, message);
}

}  // namespace

void AppendField(const Message& message, const FieldDescriptor* field, std::string* out) {
  if (!field->is_repeated()) {
    AppendValue(message, field, -1, out);
    return;
  }
  const int size = message.GetReflection()->FieldSize(message, field);
  out->push_back('[');
  for (int i = 0; i < size; ++i) {
    if (i > 0) out->append(", ");
    AppendValue(message, field, i, out);
  }
  out->push_back(']');
}

bool ReadField(TextLexer* lexer, const FieldDescriptor* field, Message* message) {
  if (!field->is_repeated()) return ReadValue(lexer, field, message);
  return lexer->Expect('[') &&
         ReadList(lexer, ']', [&] { return ReadValue(lexer, field, message); });
}

void AppendLiteral(const Message& message, std::initializer_list<int> without, std::string* out) {
  const Reflection& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  out->push_back('{');
  bool first = true;
  for (const FieldDescriptor* field : fields) {
    if (std::find(without.begin(), without.end(), field->number()) != without.end()) continue;
    if (!first) out->append(", ");
    first = false;
    absl::StrAppend(out, field->name(), ": ");
    AppendField(message, field, out);
  }
  AppendUnknownFields(r.GetUnknownFields(message), first, out);
  out->push_back('}');
}

bool ReadLiteral(TextLexer* lexer, Message* message) {
  if (!lexer->Expect('{')) return false;
  return ReadList(lexer, '}', [&] {
    const Token& key = lexer->peek();
    if (key.kind != Token::Kind::kWord) return lexer->Fail("a field name or number");
    if (key.text[0] >= '0' && key.text[0] <= '9') {
      return ReadUnknownField(lexer, 1, message->GetReflection()->MutableUnknownFields(message));
    }
    return ReadKnownField(lexer, message);
  });
}

bool HasOnly(const Message& message, std::initializer_list<int> numbers) {
  const Reflection& r = *message.GetReflection();
  if (!r.GetUnknownFields(message).empty()) return false;
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  return std::all_of(fields.begin(), fields.end(), [&](const FieldDescriptor* field) {
    return std::find(numbers.begin(), numbers.end(), field->number()) != numbers.end();
  });
}

}  // namespace weft
