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

// Appends the bytes in double quotes. Quotes, backslashes and control characters are C escapes; so
// are bytes outside of ASCII, if the bytes are not UTF-8.
void AppendQuoted(absl::string_view bytes, std::string* out);

// Appends a name, quoted unless it is a word.
void AppendName(absl::string_view name, std::string* out);

void AppendInt(int64_t value, std::string* out);

// Append the shortest decimal number that reads back as the same bits, with a point or an exponent;
// inf, -inf, nan; nan_7fc00001 for a NaN with other bits.
void AppendFloat(float value, std::string* out);
void AppendFloat(double value, std::string* out);

// Read a word as a decimal number. False if it is no number of that type, or does not fit.
bool ReadNumber(absl::string_view word, int32_t* value);
bool ReadNumber(absl::string_view word, int64_t* value);
bool ReadNumber(absl::string_view word, uint64_t* value);
bool ReadNumber(absl::string_view word, float* value);
bool ReadNumber(absl::string_view word, double* value);
// "0x" and hexadecimal digits.
bool ReadHex(absl::string_view word, uint32_t* value);
bool ReadHex(absl::string_view word, uint64_t* value);

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_WORDS_H_
