// JSON, of which values point into the file.
#ifndef WEFT_CHECKER_JSON_H_
#define WEFT_CHECKER_JSON_H_

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checker/format.h"

namespace checker {

using Texts = std::vector<std::string_view>;
inline constexpr char kBlanks[] = " \t\n\r";

class Json {
 public:
  explicit Json(std::string_view text) : text_(text) { Space(); }

  // The only value of a file, which is found to be JSON. Others are in such values.
  static std::string_view Checked(std::string_view file) {
    Json json(file);
    const size_t begin = json.at_;
    const size_t end = json.Check(0);
    Expect(json.at_ == file.size(), "something follows the JSON");
    return file.substr(begin, end - begin);
  }

  // The elements of a list, or the members of an object, each after its name.
  static Texts PartsOf(std::string_view raw, char open) {
    Expect(raw[0] == open, open == '{' ? "expected an object, found " : "expected a list, found ",
           raw.substr(0, 20));
    Texts parts;
    for (Json json(raw.substr(1, raw.size() - 2)); json.at_ < json.text_.size();) {
      parts.push_back(json.Any());
      if (json.at_ < json.text_.size()) ++json.at_, json.Space();
    }
    return parts;
  }

 private:
  // The next value, of what is JSON.
  std::string_view Any() {
    const size_t begin = at_;
    int depth = 0;
    do {
      const char c = text_[at_++];
      if (c == '"') {
        for (; text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\' ? 1 : 0;
        ++at_;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      } else if (depth == 0) {
        at_ = std::min(text_.find_first_of(",: \t\n\r", at_), text_.size());
      }
    } while (depth > 0);
    const std::string_view raw = text_.substr(begin, at_ - begin);
    Space();
    return raw;
  }
  // Reads a value. Returns where it ends, before blanks.
  size_t Check(int depth) {
    const size_t begin = at_;
    const char first = At();
    if (first == '{' || first == '[') {
      Expect(depth < 64, "the JSON has too many values inside one another");
      const char close = first == '{' ? '}' : ']';
      Take(first);
      for (bool is_first = true; At() != close; is_first = false) {
        if (!is_first) Take(',');
        if (first == '{') {
          Expect(At() == '"', "expected a name in the JSON");
          Check(depth);
          Take(':');
        }
        Check(depth + 1);
      }
      ++at_;
    } else if (first == '"') {
      for (++at_; At() != '"'; ++at_) {
        Expect(static_cast<unsigned char>(At()) >= 0x20, "a text has a control character");
        if (At() != '\\') continue;
        ++at_;
        Expect(std::string_view("\"\\/bfnrtu").find(At()) != std::string_view::npos,
               "a text has another escape");
        for (int digits = At() == 'u' ? 4 : 0; digits > 0; --digits) {
          ++at_;
          Expect(std::isxdigit(static_cast<unsigned char>(At())) != 0, "a text has another escape");
        }
      }
      ++at_;
    } else {
      at_ = std::min(text_.find_first_not_of("+-.0123456789Eaeflnrstu", at_), text_.size());
      const std::string_view raw = text_.substr(begin, at_ - begin);
      Expect(raw == "true" || raw == "false" || raw == "null" || IsNumber(raw),
             "this is not JSON: ", text_.substr(begin, 20));
    }
    const size_t end = at_;
    Space();
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
  void Space() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }
  void Take(char wanted) {
    Expect(At() == wanted, "expected ", std::string_view(&wanted, 1), " in the JSON");
    ++at_;
    Space();
  }

  std::string_view text_;
  size_t at_ = 0;
};

// A value as it stands in the file. Blanks between its parts make no other value.
struct Raw : std::string_view {
  Raw() = default;
  Raw(std::string_view raw) : std::string_view(raw) {}  // NOLINT: each value is one

  friend bool operator==(const Raw& a, const Raw& b) {
    size_t i = 0, j = 0;
    for (bool in_text = false;;) {
      if (!in_text) {
        i = std::min(a.find_first_not_of(kBlanks, i), a.size());
        j = std::min(b.find_first_not_of(kBlanks, j), b.size());
      }
      if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
      if (a[i] != b[j]) return false;
      const bool is_escape = in_text && a[i] == '\\';
      if (a[i] == '"') in_text = !in_text;
      ++i, ++j;
      if (is_escape && (a[i++] != b[j++])) return false;
    }
  }
  friend bool operator!=(const Raw& a, const Raw& b) { return !(a == b); }
};

inline std::string_view StringOf(std::string_view raw) {  // without escapes
  Expect(raw[0] == '"' && raw.find('\\') == raw.npos, "expected a text without escapes, found ",
         raw.substr(0, 20));
  return raw.substr(1, raw.size() - 2);
}
inline int64_t IntegerOf(std::string_view raw) {
  const size_t sign = raw[0] == '-' ? 1 : 0;
  Expect(raw.size() > sign && raw.size() < sign + 19 &&
             (raw[sign] != '0' || raw.size() == 1 + sign) &&
             raw.find_first_not_of("0123456789", sign) == raw.npos,
         "expected an integer, found ", raw.substr(0, 20));
  return std::strtoll(std::string(raw).c_str(), nullptr, 10);
}
inline double DoubleOf(std::string_view raw) {
  Expect(raw[0] == '-' || (raw[0] >= '0' && raw[0] <= '9'), "expected a number, found ",
         raw.substr(0, 20));
  return std::strtod(std::string(raw).c_str(), nullptr);
}

inline Texts Elements(std::string_view raw) { return Json::PartsOf(raw, '['); }

// The members of an object, of which each has another name.
struct Members {
  std::vector<std::pair<std::string_view, std::string_view>> all;

  // count: how many there are, if it is not 0.
  explicit Members(std::string_view raw, size_t count = 0) {
    const Texts parts = Json::PartsOf(raw, '{');
    std::set<std::string_view> names;  // of many
    for (size_t i = 0; i < parts.size(); i += 2) {
      const std::string_view name = StringOf(parts[i]);
      Expect(parts.size() > 64 ? names.insert(name).second : !Has(name),
             "an object has two members ", name);
      all.emplace_back(name, parts[i + 1]);
    }
    Expect(count == 0 || all.size() == count, "an object has another member");
  }
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  std::string_view Get(std::string_view name) const {
    Expect(Has(name), "the member ", name, " is missing");
    return *Find(name);
  }
  std::string_view String(std::string_view name) const { return StringOf(Get(name)); }

 private:
  const std::string_view* Find(std::string_view name) const {
    for (const auto& [known, value] : all) {
      if (known == name) return &value;
    }
    return nullptr;
  }
};

}  // namespace checker

#endif  // WEFT_CHECKER_JSON_H_
