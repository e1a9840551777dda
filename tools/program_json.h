// A program as JSON, for scripts and people; nothing reads it back.
#ifndef WEFT_TOOLS_PROGRAM_JSON_H_
#define WEFT_TOOLS_PROGRAM_JSON_H_

#include <string>

#include "google/protobuf/message.h"

namespace weft {

// The message as indented JSON, members in the order of the fields' numbers and named as in the
// schema; fields that are not set are left out. Integers are numbers, enums names. NaN and
// infinities are the strings "nan", "inf", "-inf"; bytes of strings that are not UTF-8 become
// U+FFFD. Fields and enum numbers that the schema does not know stand in a member "unknown_fields"
// of their message: a list of {"field": number, "varint" | "fixed32" | "fixed64" | "bytes": value},
// the bytes in hexadecimal. O(message) time and memory.
std::string MessageToJson(const google::protobuf::Message& message);

}  // namespace weft

#endif  // WEFT_TOOLS_PROGRAM_JSON_H_
