#include "proto/text/text_lexer.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

// Messages show this much of a token.
constexpr size_t kMaxShown = 40;

bool IsPunctuation(char c) {
  return absl::string_view("()[]{}<>,:=!?").find(c) != absl::string_view::npos;
}

std::string Describe(const Token& token) {
  const absl::string_view head = token.text.substr(0, kMaxShown);
  const std::string shown = absl::StrCat(IsUtf8(head) && head.find('\0') == absl::string_view::npos
                                             ? std::string(head)
                                             : absl::CHexEscape(head),
                                         head.size() < token.text.size() ? "..." : "");
  switch (token.kind) {
    case Token::Kind::kWord:
    case Token::Kind::kPunctuation:
      return absl::StrCat("'", shown, "'");
    case Token::Kind::kString:
      return absl::StrCat("string ", shown);
    case Token::Kind::kEndOfLine:
      return "end of line";
    case Token::Kind::kEndOfText:
      return "end of text";
    case Token::Kind::kInvalid:
      break;
  }
  return token.text[0] == '"' ? "a string without end" : absl::StrCat("character '", shown, "'");
}

absl::string_view NumberName(const int32_t*) { return "a 32-bit integer"; }
absl::string_view NumberName(const int64_t*) { return "a 64-bit integer"; }
absl::string_view NumberName(const float*) { return "a 32-bit floating-point number"; }
absl::string_view NumberName(const double*) { return "a 64-bit floating-point number"; }

}  // namespace

TextLexer::TextLexer(absl::string_view text) : text_(text) {
  token_ = Lex();
  TryEndOfLine();  // the text may begin with empty lines
}

void TextLexer::SkipBlanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else if (c == '#') {
      const size_t end = text_.find('\n', position_);
      position_ = end == absl::string_view::npos ? text_.size() : end;
    } else {
      return;
    }
  }
}

Token TextLexer::Lex() {
  SkipBlanks();
  Token token;
  token.line = line_;
  token.column = static_cast<int>(position_ - line_begin_) + 1;
  const size_t begin = position_;
  if (begin == text_.size()) return token;
  const char c = text_[begin];
  if (c == '\n') {
    token.kind = Token::Kind::kEndOfLine;
    while (position_ < text_.size() && text_[position_] == '\n') {
      line_begin_ = ++position_;
      ++line_;
      SkipBlanks();
    }
    return token;
  }
  if (c == '"') return LexString(token);
  if (IsWordChar(c)) {
    token.kind = Token::Kind::kWord;
    while (position_ < text_.size() && IsWordChar(text_[position_])) ++position_;
  } else {
    token.kind = IsPunctuation(c) ? Token::Kind::kPunctuation : Token::Kind::kInvalid;
    ++position_;
  }
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

Token TextLexer::LexString(Token token) {
  const size_t begin = position_++;
  token.kind = Token::Kind::kInvalid;
  while (position_ < text_.size() && text_[position_] != '\n') {
    const char c = text_[position_++];
    if (c == '"') {
      token.kind = Token::Kind::kString;
      break;
    }
    // A backslash may escape a quote. A line end is never part of a string.
    if (c == '\\' && position_ < text_.size() && text_[position_] != '\n') ++position_;
  }
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

bool TextLexer::ExpectRestOfLine(std::string* text) {
  if (token_.kind == Token::Kind::kEndOfLine || token_.kind == Token::Kind::kEndOfText) {
    return Fail("text");
  }
  const size_t begin = line_begin_ + token_.column - 1;
  const size_t end = std::min(text_.find('\n', begin), text_.size());
  *text = std::string(absl::StripTrailingAsciiWhitespace(text_.substr(begin, end - begin)));
  position_ = end;
  token_ = Lex();
  return ExpectEndOfLine();
}

Token TextLexer::Next() {
  const Token token = token_;
  token_ = Lex();
  return token;
}

bool TextLexer::Try(char punctuation) {
  if (!token_.Is(punctuation)) return false;
  Next();
  return true;
}

bool TextLexer::TryWord(absl::string_view word) {
  if (!token_.IsWord(word)) return false;
  Next();
  return true;
}

bool TextLexer::TryKey(absl::string_view word) {
  if (!token_.IsWord(word) || position_ == text_.size() || text_[position_] != '=') return false;
  Next();
  Next();
  return true;
}

bool TextLexer::TryEndOfLine() {
  if (token_.kind != Token::Kind::kEndOfLine) return false;
  Next();
  return true;
}

bool TextLexer::Expect(char punctuation) {
  return Try(punctuation) || Fail(absl::StrCat("'", std::string(1, punctuation), "'"));
}

bool TextLexer::ExpectWord(absl::string_view word) {
  return TryWord(word) || Fail(absl::StrCat("'", word, "'"));
}

bool TextLexer::ExpectEndOfLine() {
  return token_.kind == Token::Kind::kEndOfText || TryEndOfLine() || Fail("end of line");
}

bool TextLexer::ExpectName(std::string* name) {
  if (token_.kind == Token::Kind::kString) return ExpectString(name);
  if (token_.kind != Token::Kind::kWord) return Fail("a name");
  name->assign(token_.text.data(), token_.text.size());
  Next();
  return true;
}

bool TextLexer::ExpectString(std::string* bytes) {
  if (token_.kind != Token::Kind::kString) return Fail("a string");
  const absl::string_view quoted = token_.text.substr(1, token_.text.size() - 2);
  std::string problem;
  if (!absl::CUnescape(quoted, bytes, &problem)) {
    return Fail(absl::StrCat("a string with valid escapes (", problem, ")"));
  }
  Next();
  return true;
}

template <typename T>
bool TextLexer::ExpectNumber(T* value) {
  if (token_.kind != Token::Kind::kWord || !ReadNumber(token_.text, value)) {
    return Fail(NumberName(value));
  }
  Next();
  return true;
}

template bool TextLexer::ExpectNumber(int32_t*);
template bool TextLexer::ExpectNumber(int64_t*);
template bool TextLexer::ExpectNumber(float*);
template bool TextLexer::ExpectNumber(double*);

bool TextLexer::Fail(absl::string_view expected) { return FailAt(token_, expected); }

bool TextLexer::FailAt(const Token& token, absl::string_view expected) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat("line ", token.line, ", column ",
                                                      token.column, ": expected ", expected,
                                                      ", found ", Describe(token)));
  }
  return false;
}

}  // namespace weft
