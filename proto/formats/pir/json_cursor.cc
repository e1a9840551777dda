#include "proto/formats/pir/json_cursor.h"

#include <bitset>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft::pir {
namespace {

int HexValue(char c) {
  return absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
}

uint32_t CodeUnit(absl::string_view four) {
  uint32_t unit = 0;
  for (const char c : four) unit = unit * 16 + HexValue(c);
  return unit;
}

void AppendUtf8(uint32_t c, std::string* out) {
  const auto add = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xc0 | c >> 6);
    add(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    add(0xe0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3f));
    add(0x80 | (c & 0x3f));
  } else {
    add(0xf0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3f));
    add(0x80 | (c >> 6 & 0x3f));
    add(0x80 | (c & 0x3f));
  }
}

}  // namespace

bool JsonCursor::Once(bool* seen) {
  if (!std::exchange(*seen, true)) return true;
  return Fail("a key once in its object", "it twice", position());
}

bool JsonCursor::Fail(absl::string_view expected) {
  Peek();
  const absl::string_view rest(next_, end_ - next_);
  const std::string found =
      rest.empty() ? "the end"
                   : absl::StrCat("'", absl::Utf8SafeCHexEscape(rest.substr(0, 16)), "'");
  return Fail(expected, found, next_);
}

bool JsonCursor::Fail(absl::string_view expected, absl::string_view found, const char* at) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("byte ", offset_ + (at - begin_), ": expected ", expected, ", found ", found));
  }
  return false;
}

char JsonCursor::Peek() {
  while (next_ < end_ && (*next_ == ' ' || *next_ == '\n' || *next_ == '\r' || *next_ == '\t')) {
    ++next_;
  }
  return next_ < end_ ? *next_ : '\0';
}

bool JsonCursor::Consume(char c) {
  if (!ok()) return false;
  if (Peek() != c || next_ == end_) return Fail(absl::StrCat("'", std::string(1, c), "'"));
  ++next_;
  return true;
}

bool JsonCursor::Enter() {
  if (++depth_ <= kMaxDepth) return true;
  return Fail(absl::StrCat("values nested at most ", kMaxDepth, " deep"), "deeper ones", next_);
}

bool JsonCursor::ReadObject(absl::FunctionRef<bool(absl::string_view)> read) {
  if (!Consume('{') || !Enter()) return false;
  if (Peek() != '}') {
    do {
      absl::string_view key;
      if (!ReadString(&key) || !Consume(':') || !read(key) || !ok()) return false;
    } while (Peek() == ',' && Consume(','));
  }
  --depth_;
  return Consume('}');
}

bool JsonCursor::ReadArray(absl::FunctionRef<bool()> read) {
  if (!Consume('[') || !Enter()) return false;
  if (Peek() != ']') {
    do {
      if (!read() || !ok()) return false;
    } while (Peek() == ',' && Consume(','));
  }
  --depth_;
  return Consume(']');
}

bool JsonCursor::ReadString(absl::string_view* text) {
  if (!ok()) return false;
  if (Peek() != '"') return Fail("a string");
  const char* const begin = next_ + 1;
  if (!SkipString()) return false;
  *text = absl::string_view(begin, next_ - 1 - begin);
  return true;
}

bool JsonCursor::ReadInteger(int64_t* value) {
  if (!ok()) return false;
  Peek();
  const char* const begin = next_;
  if (!SkipNumber()) return false;
  const absl::string_view text(begin, next_ - begin);
  if (absl::SimpleAtoi(text, value)) return true;
  return Fail("an integer of 64 bits", text.substr(0, 32), begin);
}

bool JsonCursor::SkipString() {
  for (++next_; next_ < end_; ++next_) {
    const char c = *next_;
    if (c == '"') {
      ++next_;
      return true;
    }
    if (static_cast<unsigned char>(c) < 0x20) return Fail("no control character in a string");
    if (c != '\\') continue;
    if (++next_ == end_) break;
    if (*next_ != 'u') {
      if (absl::string_view("\"\\/bfnrt").find(*next_) == absl::string_view::npos) {
        return Fail("an escape of JSON");
      }
      continue;
    }
    if (end_ - next_ < 5) break;
    for (int i = 1; i <= 4; ++i) {
      if (!absl::ascii_isxdigit(next_[i])) return Fail("four hexadecimal digits after \\u");
    }
    next_ += 4;
  }
  next_ = end_;
  return Fail("the end of a string");
}

bool JsonCursor::SkipNumber() {
  const auto digits = [this] {
    const char* const begin = next_;
    while (next_ < end_ && absl::ascii_isdigit(*next_)) ++next_;
    return next_ - begin;
  };
  if (next_ < end_ && *next_ == '-') ++next_;
  const char* const first = next_;
  const auto count = digits();
  if (count == 0 || (count > 1 && *first == '0')) {
    next_ = first;
    return Fail("a number");
  }
  if (next_ < end_ && *next_ == '.') {
    ++next_;
    if (digits() == 0) return Fail("a digit");
  }
  if (next_ < end_ && (*next_ == 'e' || *next_ == 'E')) {
    ++next_;
    if (next_ < end_ && (*next_ == '+' || *next_ == '-')) ++next_;
    if (digits() == 0) return Fail("a digit");
  }
  return true;
}

bool JsonCursor::SkipLiteral(absl::string_view word) {
  if (absl::string_view(next_, end_ - next_).substr(0, word.size()) != word) {
    return Fail("a JSON value");
  }
  next_ += word.size();
  return true;
}

bool JsonCursor::SkipScalar() {
  switch (Peek()) {
    case '"':
      return SkipString();
    case 't':
      return SkipLiteral("true");
    case 'f':
      return SkipLiteral("false");
    case 'n':
      return SkipLiteral("null");
    default:
      return SkipNumber();
  }
}

bool JsonCursor::SkipValue(absl::string_view* bytes) {
  if (!ok()) return false;
  Peek();
  const char* const begin = next_;
  std::bitset<kMaxDepth + 1> is_object;  // of the open values, by depth
  const int outside = depth_;
  // Where a value begins, or where one has ended.
  bool at_value = true;
  do {
    if (at_value) {
      const char c = Peek();
      if (c != '{' && c != '[') {
        if (!SkipScalar()) return false;
        at_value = false;
        continue;
      }
      ++next_;
      if (!Enter()) return false;
      is_object[depth_] = c == '{';
      if (Peek() == (c == '{' ? '}' : ']')) {
        at_value = false;
      } else if (c == '{') {
        absl::string_view key;
        if (!ReadString(&key) || !Consume(':')) return false;
      }
      if (at_value) continue;
    } else if (Peek() == ',') {
      ++next_;
      absl::string_view key;
      if (is_object[depth_] && (!ReadString(&key) || !Consume(':'))) return false;
      at_value = true;
      continue;
    }
    if (!Consume(is_object[depth_] ? '}' : ']')) return false;
    --depth_;
  } while (depth_ > outside);
  if (bytes != nullptr) *bytes = absl::string_view(begin, next_ - begin);
  return true;
}

bool JsonCursor::ExpectEnd() {
  if (!ok()) return false;
  Peek();
  return next_ == end_ || Fail("the end");
}

absl::StatusOr<std::string> JsonUnescape(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    switch (const char c = text[++i]) {
      case 'b':
        out.push_back('\b');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'u': {
        uint32_t unit = CodeUnit(text.substr(i + 1, 4));
        i += 4;
        if (unit >= 0xd800 && unit < 0xe000) {
          const bool has_low = unit < 0xdc00 && text.substr(i + 1, 2) == "\\u";
          const uint32_t low = has_low ? CodeUnit(text.substr(i + 3, 4)) : 0;
          if (low < 0xdc00 || low >= 0xe000) {
            return absl::InvalidArgumentError(
                absl::StrCat("expected pairs of surrogates in a string, found \\u",
                             text.substr(i - 3, 4), " alone"));
          }
          unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
          i += 6;
        }
        AppendUtf8(unit, &out);
        break;
      }
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace weft::pir
