// How program text writes names, strings and numbers, and reads them back.
#ifndef WEFT_PROTO_TEXT_TEXT_WORDS_H_
#define WEFT_PROTO_TEXT_TEXT_WORDS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// A word is a run of these: letters, digits and _ . @ / | + -
bool IsWordChar(char c);

bool IsUtf8(absl::string_view bytes);

// In double quotes, with C escapes for quotes, backslashes, control characters, and, where the
// bytes are not UTF-8, for all bytes outside of ASCII.
void AppendQuoted(absl::string_view bytes, std::string* out);

// The name itself where it is a word, otherwise quoted.
void AppendName(absl::string_view name, std::string* out);

void AppendInt(int64_t value, std::string* out);

// The shortest decimal number that reads back as the same bits, always with a point or an
// exponent; inf, -inf, nan; nan_7fc00001 for a NaN of other bits than the usual ones.
void AppendFloat(float value, std::string* out);
void AppendDouble(double value, std::string* out);

// Read one word. False where it is no such number or does not fit.
bool ReadInt(absl::string_view word, int32_t* value);
bool ReadInt(absl::string_view word, int64_t* value);
bool ReadInt(absl::string_view word, uint32_t* value);
bool ReadInt(absl::string_view word, uint64_t* value);
// "0x" and hexadecimal digits.
bool ReadHex(absl::string_view word, uint32_t* value);
bool ReadHex(absl::string_view word, uint64_t* value);
bool ReadFloat(absl::string_view word, float* value);
bool ReadDouble(absl::string_view word, double* value);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_WORDS_H_
