// A reader of JSON from front to back, of which values point into the file.
#ifndef WEFT_CHECKER_JSON_H_
#define WEFT_CHECKER_JSON_H_

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checker/format.h"

namespace checker {

class Json {
 public:
  // `is_checked`: it is a value that another reader has given.
  explicit Json(std::string_view text, bool is_checked = true)
      : text_(text), is_checked_(is_checked) {
    Space();
  }

  // use(name) has to read the value. `is_small`: it has 64 members at most.
  template <typename Use>
  void Object(const Use& use, bool is_small = true) {
    std::vector<std::string_view> names;
    std::set<std::string_view> many;
    Values('{', '}', [&] {
      const std::string_view name = String();
      bool is_new = is_small || many.insert(name).second;
      for (const std::string_view other : names) is_new = is_new && other != name;
      Expect(is_new, "an object has two members ", name);
      Expect(names.size() < 64, "an object has more than 64 members");
      if (is_small) names.push_back(name);
      Take(':');
      use(name);
    });
  }
  // use() has to read the element.
  template <typename Use>
  void List(const Use& use) {
    Values('[', ']', use);
  }
  std::string_view String() {  // without escapes
    const std::string_view raw = Any();
    Expect(raw[0] == '"' && raw.find('\\') == raw.npos, "expected a text without escapes, found ",
           raw.substr(0, 20));
    return raw.substr(1, raw.size() - 2);
  }
  int64_t Integer() {
    const std::string_view raw = Any();
    const size_t sign = raw[0] == '-' ? 1 : 0;
    Expect(raw.size() > sign && raw.size() < sign + 19 &&
               (raw[sign] != '0' || raw.size() == 1 + sign) &&
               raw.find_first_not_of("0123456789", sign) == raw.npos,
           "expected an integer, found ", raw.substr(0, 20));
    return std::strtoll(std::string(raw).c_str(), nullptr, 10);
  }
  double Number() {
    const std::string_view raw = Any();
    Expect(IsNumber(raw), "expected a number, found ", raw.substr(0, 20));
    return std::strtod(std::string(raw).c_str(), nullptr);
  }
  // A value as it stands.
  std::string_view Any() {
    const size_t begin = at_;
    size_t end = 0;
    const char first = At();
    if (is_checked_) {
      end = EndOfChecked();
      at_ = end;
      Space();
      return text_.substr(begin, end - begin);
    }
    if (first == '{' || first == '[') {
      Values(
          first, first == '{' ? '}' : ']',
          [&] {
            if (first == '{') {
              Expect(At() == '"', "expected a name in the JSON");
              Any();
              Take(':');
            }
            Any();
          },
          &end);
      return text_.substr(begin, end - begin);
    }
    if (first == '"') {
      for (++at_; At() != '"'; ++at_) {
        Expect(static_cast<unsigned char>(At()) >= 0x20, "a text has a control character");
        if (At() == '\\') ++at_, At();
      }
      ++at_;
    } else {
      at_ = std::min(text_.find_first_not_of("+-.0123456789Eaeflnrstu", at_), text_.size());
    }
    const std::string_view raw = text_.substr(begin, at_ - begin);
    const bool is_word = raw == "true" || raw == "false" || raw == "null";
    Expect(first == '"' || is_word || IsNumber(raw), "this is not JSON: ", text_.substr(at_, 20));
    Space();
    return raw;
  }
  void End() const { Expect(at_ == text_.size(), "something follows the JSON"); }

 private:
  size_t EndOfChecked() const {
    size_t end = at_;
    int depth = 0;
    do {
      const char c = text_[end++];
      if (c == '"') {
        for (; text_[end] != '"'; ++end) end += text_[end] == '\\' ? 1 : 0;
        ++end;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      } else if (depth == 0) {
        return std::min(text_.find_first_of(",]} \t\n\r", end), text_.size());
      }
    } while (depth > 0);
    return end;
  }
  static bool IsNumber(std::string_view raw) {
    const auto skip = [&](std::string_view any, size_t most) {
      const size_t count = std::min({raw.find_first_not_of(any), raw.size(), most});
      raw.remove_prefix(count);
      return count;
    };
    skip("-", 1);
    const bool has_zero = raw.substr(0, 1) == "0";
    const size_t whole = skip("0123456789", raw.npos);
    const bool is_whole = whole > 0 && (!has_zero || whole == 1);
    return is_whole && (skip(".", 1) == 0 || skip("0123456789", raw.npos) > 0) &&
           (skip("eE", 1) == 0 || (skip("+-", 1), skip("0123456789", raw.npos) > 0)) && raw.empty();
  }
  char At() const {
    Expect(at_ < text_.size(), "the JSON is cut off");
    return text_[at_];
  }
  void Space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r'))) {
      Expect(text_[at_] != '\v' && text_[at_] != '\f', "the JSON has another blank");
      ++at_;
    }
  }
  void Take(char wanted) {
    Expect(At() == wanted, "expected ", std::string_view(&wanted, 1), " in the JSON");
    ++at_;
    Space();
  }
  template <typename Use>
  void Values(char open, char close, const Use& use, size_t* end = nullptr) {
    Take(open);
    Expect(++depth_ <= 64, "the JSON has too many values inside one another");
    for (bool is_first = true; At() != close; is_first = false) {
      if (!is_first) Take(',');
      use();
    }
    --depth_;
    if (end != nullptr) *end = at_ + 1;
    Take(close);
  }

  std::string_view text_;
  bool is_checked_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace checker

#endif  // WEFT_CHECKER_JSON_H_
