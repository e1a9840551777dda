// Any message as text, field by field: the form of messages without a short form.
//
//   {type: LONG, i: 5, 99: 7, 100: fixed32(0x1), 101: "bytes", 102: {1: 2}}
//
// Known fields have their names, in the order of their numbers; repeated ones are [a, b]. Unknown
// fields, which include enum numbers that this version does not know, have their numbers: integers
// as unsigned varints, fixed32(...) and fixed64(...), length-delimited ones as strings, groups in
// braces. Unset fields are omitted, so the text reads back as an equal message.
#ifndef WEFT_PROTO_TEXT_TEXT_LITERAL_H_
#define WEFT_PROTO_TEXT_TEXT_LITERAL_H_

#include <initializer_list>
#include <string>

#include "google/protobuf/message.h"
#include "proto/text/text_lexer.h"

namespace weft {

// The message without the fields of these numbers.
void AppendLiteral(const google::protobuf::Message& message, std::initializer_list<int> without,
                   std::string* out);

// Reads a literal into a message. Fails if a field is already set. Groups may nest 100 deep, as in
// protobuf's reader.
bool ReadLiteral(TextLexer* lexer, google::protobuf::Message* message);

// Appends the value of a set field; the values of a repeated field between `[` and `]`.
void AppendField(const google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor* field, std::string* out);
// The inverse of AppendField.
bool ReadField(TextLexer* lexer, const google::protobuf::FieldDescriptor* field,
               google::protobuf::Message* message);

// True if a message has no fields except those of these numbers, and no unknown ones.
bool HasOnly(const google::protobuf::Message& message, std::initializer_list<int> numbers);

// Calls `append` for each item, and appends ", " between them.
template <typename Items, typename Append>
void AppendList(const Items& items, std::string* out, Append append) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out->append(", ");
    first = false;
    append(item);
  }
}

// Reads `item , item , ... close`; `read_item` returns false after a mistake.
template <typename ReadItem>
bool ReadList(TextLexer* lexer, char close, ReadItem read_item) {
  if (lexer->Try(close)) return true;
  while (true) {
    if (!read_item()) return false;
    if (lexer->Try(close)) return true;
    if (!lexer->Try(',')) return lexer->Fail(std::string("',' or '") + close + "'");
  }
}

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_LITERAL_H_
