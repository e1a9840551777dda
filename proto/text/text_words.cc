#include "proto/text/text_words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "google/protobuf/stubs/common.h"

namespace weft {
namespace {

// The bits of an F, and those of the usual NaN.
template <typename F>
using BitsOf = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;
template <typename F>
constexpr BitsOf<F> kNanBits = sizeof(F) == 4 ? 0x7fc00000u : 0x7ff8000000000000u;

constexpr absl::string_view kNanPrefix = "nan_";

template <typename T>
bool ReadAll(absl::string_view digits, int base, T* value) {
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, *value, base);
  return error == std::errc() && rest == end;
}

template <typename F>
void AppendFloating(F value, std::string* out) {
  char buffer[64];
  if (std::isnan(value)) {
    BitsOf<F> bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (bits == kNanBits<F>) {
      out->append("nan");
      return;
    }
    char* const end = std::to_chars(buffer, buffer + sizeof(buffer), bits, 16).ptr;
    out->append(kNanPrefix.data(), kNanPrefix.size());
    out->append(buffer, end);
    return;
  }
  char* const end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  out->append(buffer, end);
  // It must not look like an integer. "inf" has an n.
  if (std::none_of(buffer, end, [](char c) { return c == '.' || c == 'e' || c == 'n'; })) {
    out->append(".0");
  }
}

template <typename F>
bool ReadFloating(absl::string_view word, F* value) {
  if (word == "nan" || absl::StartsWith(word, kNanPrefix)) {
    BitsOf<F> bits = kNanBits<F>;
    if (word != "nan" && !ReadAll(word.substr(kNanPrefix.size()), 16, &bits)) return false;
    std::memcpy(value, &bits, sizeof(bits));
    return std::isnan(*value);
  }
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, *value);
  // from_chars also accepts "infinity" and "nan(...)".
  return error == std::errc() && rest == end &&
         (std::isfinite(*value) || word == "inf" || word == "-inf");
}

template <typename T>
bool ReadHexDigits(absl::string_view word, T* value) {
  return absl::StartsWith(word, "0x") && ReadAll(word.substr(2), 16, value);
}

}  // namespace

bool IsWordChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("_.@/|+-").find(c) != absl::string_view::npos;
}

bool IsUtf8(absl::string_view bytes) {
  return google::protobuf::internal::IsStructurallyValidUTF8(bytes.data(),
                                                             static_cast<int>(bytes.size()));
}

void AppendQuoted(absl::string_view bytes, std::string* out) {
  const bool utf8 = IsUtf8(bytes);
  out->push_back('"');
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      // Three octal digits: a hexadecimal escape has no fixed length.
      out->push_back('\\');
      out->push_back(static_cast<char>('0' + (byte >> 6)));
      out->push_back(static_cast<char>('0' + ((byte >> 3) & 7)));
      out->push_back(static_cast<char>('0' + (byte & 7)));
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

void AppendName(absl::string_view name, std::string* out) {
  if (!name.empty() && std::all_of(name.begin(), name.end(), IsWordChar)) {
    out->append(name.data(), name.size());
  } else {
    AppendQuoted(name, out);
  }
}

void AppendInt(int64_t value, std::string* out) {
  char buffer[24];
  char* const end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  out->append(buffer, end);
}

void AppendFloat(float value, std::string* out) { AppendFloating(value, out); }
void AppendFloat(double value, std::string* out) { AppendFloating(value, out); }

bool ReadNumber(absl::string_view word, int32_t* value) { return ReadAll(word, 10, value); }
bool ReadNumber(absl::string_view word, int64_t* value) { return ReadAll(word, 10, value); }
bool ReadNumber(absl::string_view word, uint64_t* value) { return ReadAll(word, 10, value); }
bool ReadNumber(absl::string_view word, float* value) { return ReadFloating(word, value); }
bool ReadNumber(absl::string_view word, double* value) { return ReadFloating(word, value); }
bool ReadHex(absl::string_view word, uint32_t* value) { return ReadHexDigits(word, value); }
bool ReadHex(absl::string_view word, uint64_t* value) { return ReadHexDigits(word, value); }

}  // namespace weft
