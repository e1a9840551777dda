#include "proto/text/text_attr.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "proto/text/text_literal.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

namespace pb = ::paddle::framework::proto;
using ::google::protobuf::FieldDescriptor;

constexpr int kNumTypes = pb::AttrType_MAX + 1;

// The word for a type, and the field of Attr that holds its value.
struct AttrForm {
  absl::string_view word;
  const char* field;
};

const AttrForm& FormOf(pb::AttrType type) {
  static constexpr std::array<AttrForm, kNumTypes> kForms = {{
      {"int", "i"},
      {"float", "f"},
      {"string", "s"},
      {"ints", "ints"},
      {"floats", "floats"},
      {"strings", "strings"},
      {"bool", "b"},
      {"bools", "bools"},
      {"block", "block_idx"},
      {"long", "l"},
      {"blocks", "blocks_idx"},
      {"longs", "longs"},
      {"float64s", "float64s"},
      {"var", "var_name"},
      {"vars", "vars_name"},
      {"float64", "float64"},
      {"scalar", "scalar"},
      {"scalars", "scalars"},
  }};
  return kForms[type];
}

// The field that holds the value of a type; null if attributes of this kind (those of variables)
// have none.
template <typename Attr>
const FieldDescriptor* ValueField(pb::AttrType type) {
  static const auto& fields = *[] {
    auto* by_type = new std::array<const FieldDescriptor*, kNumTypes>;
    for (int t = 0; t < kNumTypes; ++t) {
      (*by_type)[t] =
          Attr::descriptor()->FindFieldByName(FormOf(static_cast<pb::AttrType>(t)).field);
    }
    return by_type;
  }();
  return fields[type];
}

// True for types whose values need no word.
bool IsBare(pb::AttrType type) {
  return type == pb::INT || type == pb::FLOAT || type == pb::STRING || type == pb::BOOLEAN;
}

bool LooksLikeInteger(absl::string_view word) {
  return std::all_of(word.begin(), word.end(),
                     [](char c) { return c == '-' || (c >= '0' && c <= '9'); });
}

// The type of a value without a word.
pb::AttrType BareType(const Token& token) {
  if (token.kind == Token::Kind::kString) return pb::STRING;
  if (token.IsWord("true") || token.IsWord("false")) return pb::BOOLEAN;
  return LooksLikeInteger(token.text) ? pb::INT : pb::FLOAT;
}

// The type that a word names; -1 if it names none.
template <typename Attr>
int TypeNamed(const Token& token) {
  if (token.kind != Token::Kind::kWord) return -1;
  for (int t = 0; t < kNumTypes; ++t) {
    const auto type = static_cast<pb::AttrType>(t);
    if (FormOf(type).word == token.text && ValueField<Attr>(type) != nullptr) return t;
  }
  return -1;
}

// Reading the number checks the rest, so that the error names its type.
bool StartsNumber(const Token& token) {
  if (token.kind != Token::Kind::kWord) return false;
  const char c = token.text[0];
  return c == '-' || (c >= '0' && c <= '9') || token.text == "inf" ||
         absl::StartsWith(token.text, "nan");
}

}  // namespace

template <typename Attr>
bool HasShortForm(const Attr& attr) {
  if (!attr.has_name() || !attr.has_type()) return false;
  const FieldDescriptor* value = ValueField<Attr>(attr.type());
  return value != nullptr &&
         HasOnly(attr, {Attr::kNameFieldNumber, Attr::kTypeFieldNumber, value->number()});
}

template <typename Attr>
void AppendAttrValue(const Attr& attr, std::string* out) {
  const FieldDescriptor* field = ValueField<Attr>(attr.type());
  const bool has_value = field->is_repeated() || attr.GetReflection()->HasField(attr, field);
  if (IsBare(attr.type()) && has_value) {
    AppendField(attr, field, out);
    return;
  }
  const absl::string_view word = FormOf(attr.type()).word;
  out->append(word.data(), word.size());
  if (!field->is_repeated()) out->push_back('(');
  if (has_value) AppendField(attr, field, out);
  if (!field->is_repeated()) out->push_back(')');
}

template <typename Attr>
void AppendAttr(const Attr& attr, std::string* out) {
  if (!HasShortForm(attr)) {
    AppendLiteral(attr, {}, out);
    return;
  }
  AppendName(attr.name(), out);
  out->push_back('=');
  AppendAttrValue(attr, out);
}

template <typename Attr>
bool ReadAttrValue(TextLexer* lexer, Attr* attr) {
  const Token first = lexer->peek();
  const int named = TypeNamed<Attr>(first);
  if (named < 0) {
    if (first.kind != Token::Kind::kString && !first.IsWord("true") && !first.IsWord("false") &&
        !StartsNumber(first)) {
      return lexer->Fail("an attribute value");
    }
    attr->set_type(BareType(first));
    const FieldDescriptor* field = ValueField<Attr>(attr->type());
    return field == nullptr ? lexer->Fail("an int, string or ints") : ReadField(lexer, field, attr);
  }
  attr->set_type(static_cast<pb::AttrType>(named));
  const FieldDescriptor* field = ValueField<Attr>(attr->type());
  lexer->Next();
  if (field->is_repeated()) return ReadField(lexer, field, attr);
  if (!lexer->Expect('(')) return false;
  return lexer->Try(')') || (ReadField(lexer, field, attr) && lexer->Expect(')'));
}

template <typename Attr>
bool ReadAttr(TextLexer* lexer, Attr* attr) {
  if (lexer->peek().Is('{')) return ReadLiteral(lexer, attr);
  return lexer->ExpectName(attr->mutable_name()) && lexer->Expect('=') &&
         ReadAttrValue(lexer, attr);
}

template bool HasShortForm(const pb::OpDesc::Attr&);
template bool HasShortForm(const pb::VarDesc::Attr&);
template void AppendAttrValue(const pb::OpDesc::Attr&, std::string*);
template void AppendAttrValue(const pb::VarDesc::Attr&, std::string*);
template void AppendAttr(const pb::OpDesc::Attr&, std::string*);
template void AppendAttr(const pb::VarDesc::Attr&, std::string*);
template bool ReadAttrValue(TextLexer*, pb::OpDesc::Attr*);
template bool ReadAttrValue(TextLexer*, pb::VarDesc::Attr*);
template bool ReadAttr(TextLexer*, pb::OpDesc::Attr*);
template bool ReadAttr(TextLexer*, pb::VarDesc::Attr*);

}  // namespace weft
