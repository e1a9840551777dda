// Splits program text into tokens, and keeps the first mistake.
#ifndef WEFT_PROTO_TEXT_TEXT_LEXER_H_
#define WEFT_PROTO_TEXT_TEXT_LEXER_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

struct Token {
  enum class Kind {
    kWord,         // a run of word characters (proto/text/text_words.h): a name or a number
    kString,       // in double quotes, on one line
    kPunctuation,  // one of ( ) [ ] { } < > , : = ! ?
    kEndOfLine,    // one or more line ends
    kEndOfText,
    kInvalid,
  };
  Kind kind = Kind::kEndOfText;
  absl::string_view text;  // as written, quotes included
  int line = 1;
  int column = 1;  // in bytes, from 1

  bool Is(char punctuation) const { return kind == Kind::kPunctuation && text[0] == punctuation; }
  bool IsWord(absl::string_view word) const { return kind == Kind::kWord && text == word; }
};

// Reads tokens one by one. Skips spaces, tabs, carriage returns, empty lines and comments (# to the
// end of the line).
//
// The methods that return bool return false if the text is not as expected. All except the Try
// methods then note the mistake; status() returns the first one. O(text) in all.
class TextLexer {
 public:
  explicit TextLexer(absl::string_view text);

  const Token& peek() const { return token_; }
  Token Next();

  // Consume the token if it matches.
  bool Try(char punctuation);
  bool TryWord(absl::string_view word);
  // WORD followed directly by '=' ("parent="): a keyword of a line. Consumes both, or nothing.
  bool TryKey(absl::string_view word);
  bool TryEndOfLine();

  bool Expect(char punctuation);
  bool ExpectWord(absl::string_view word);
  bool ExpectEndOfLine();
  // A word or a string, decoded.
  bool ExpectName(std::string* name);
  bool ExpectString(std::string* bytes);
  // The line from the current token on, whatever it holds, without its end and blanks before it.
  bool ExpectRestOfLine(std::string* text);
  // A number that fits (instances: int32_t, int64_t, float, double).
  template <typename T>
  bool ExpectNumber(T* value);

  // Notes "line L, column C: expected EXPECTED, found TOKEN" for the current token. False.
  bool Fail(absl::string_view expected);
  // The same for an earlier token.
  bool FailAt(const Token& token, absl::string_view expected);

  // InvalidArgument with the first mistake; OK if there is none.
  const absl::Status& status() const { return status_; }

 private:
  Token Lex();
  Token LexString(Token token);
  void SkipBlanks();

  absl::string_view text_;
  size_t position_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;
  Token token_;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_PROTO_TEXT_TEXT_LEXER_H_
