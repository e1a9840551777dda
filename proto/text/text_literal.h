// Any message as text, field by field: what program text falls back to where a message has no
// short form of its own.
//
//   {type: LONG, i: 5, 99: 7, 100: fixed32(0x1), 101: "bytes", 102: {1: 2}}
//
// Known fields stand under their names, in the order of their numbers, repeated ones as [a, b].
// Unknown fields, among them enum numbers that this version does not know, stand under their
// numbers: integers as unsigned varints, fixed32(...) and fixed64(...), length-delimited ones as
// strings, groups in braces. Unset fields are left out, so the text gives back an equal message.
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

// Reads a literal into a message. Fails where a field is already set. Groups nest 100 deep at most,
// as protobuf's own reader has it.
bool ReadLiteral(TextLexer* lexer, google::protobuf::Message* message);

// The value of a set field: a repeated field as its values between `[` and `]`.
void AppendField(const google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor* field, std::string* out);
// Reads one: AppendField's counterpart.
bool ReadField(TextLexer* lexer, const google::protobuf::FieldDescriptor* field,
               google::protobuf::Message* message);

// True where a message has no fields but those of these numbers, and no unknown ones.
bool HasOnly(const google::protobuf::Message& message, std::initializer_list<int> numbers);

// "A, B, C" with `append` for each: the values of a list.
template <typename Items, typename Append>
void AppendList(const Items& items, std::string* out, Append append) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out->append(", ");
    first = false;
    append(item);
  }
}

// Reads `item , item , ... close`; `read_item` returns false where it has failed.
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
