// A program as JSON, for scripts and readers; nothing parses it back.
#ifndef WEFT_TOOLS_INSPECT_PROGRAM_JSON_H_
#define WEFT_TOOLS_INSPECT_PROGRAM_JSON_H_

#include <string>

#include "google/protobuf/message.h"

namespace weft {

// The message as indented JSON, with members in the order of field numbers, named as in the schema.
// Unset fields are left out. Integers are numbers, enums names. NaN and infinities are the strings
// "nan", "inf", "-inf"; bytes that are not UTF-8 become U+FFFD. Unknown fields and enum numbers are
// in a member "unknown_fields" of their message: a list of {"field": number, "varint" | "fixed32" |
// "fixed64" | "bytes": value}, the bytes in hexadecimal. O(message) time and memory.
std::string MessageToJson(const google::protobuf::Message& message);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_PROGRAM_JSON_H_
