#include "base/spec_text.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {
namespace {

using SpecOption = std::pair<std::string, std::string>;

class SpecParser {
 public:
  explicit SpecParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Spec>> Parse() {
    std::vector<Spec> specs;
    do {
      Spec spec;
      WEFT_ASSIGN_OR_RETURN(spec.name, Word("a name"));
      if (Take('{')) WEFT_RETURN_IF_ERROR(ParseOptions(&spec));
      specs.push_back(std::move(spec));
    } while (Take(','));
    SkipBlanks();
    if (pos_ < text_.size()) return Error("',' or the end");
    return specs;
  }

 private:
  absl::Status ParseOptions(Spec* spec) {
    if (Take('}')) return absl::OkStatus();
    do {
      const bool is_placeholder = Take('$');
      SpecOption option;
      WEFT_ASSIGN_OR_RETURN(option.first, Word("the name of an option"));
      if (is_placeholder) option.first.insert(0, 1, '$');
      if (Take('=')) {
        WEFT_ASSIGN_OR_RETURN(option.second, Value());
      } else if (!is_placeholder) {
        return Error("'='");
      }
      spec->options.push_back(std::move(option));
    } while (Take(','));
    if (!Take('}')) return Error("',' or '}'");
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Value() {
    SkipBlanks();
    if (pos_ < text_.size() && text_[pos_] == '"') {
      const size_t end = text_.find('"', pos_ + 1);
      if (end == absl::string_view::npos) return Error("a closing '\"'");
      std::string value(text_.substr(pos_ + 1, end - pos_ - 1));
      pos_ = end + 1;
      return value;
    }
    const size_t end = std::min(text_.find_first_of(",{}=", pos_), text_.size());
    std::string value(absl::StripAsciiWhitespace(text_.substr(pos_, end - pos_)));
    pos_ = end;
    return value;
  }

  absl::StatusOr<std::string> Word(absl::string_view what) {
    SkipBlanks();
    const size_t begin = pos_;
    while (pos_ < text_.size() &&
           (absl::ascii_isalnum(text_[pos_]) || text_[pos_] == '-' || text_[pos_] == '_')) {
      ++pos_;
    }
    if (pos_ == begin) return Error(what);
    return std::string(text_.substr(begin, pos_ - begin));
  }

  bool Take(char c) {
    SkipBlanks();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }

  void SkipBlanks() {
    while (pos_ < text_.size() && absl::ascii_isspace(text_[pos_])) ++pos_;
  }

  absl::Status Error(absl::string_view expected) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected ", expected, " at character ", pos_ + 1, ", found ",
        pos_ < text_.size() ? absl::StrCat("'", absl::CEscape(text_.substr(pos_, 1)), "'")
                            : "the end"));
  }

  absl::string_view text_;
  size_t pos_ = 0;
};

void AppendOption(std::string* out, const SpecOption& option) {
  const auto& [name, value] = option;
  absl::StrAppend(out, name);
  if (absl::StartsWith(name, "$") && value.empty()) return;
  const bool quoted = value.find_first_of(",{}=") != std::string::npos ||
                      absl::StripAsciiWhitespace(value) != value;
  absl::StrAppend(out, "=", quoted ? absl::StrCat("\"", value, "\"") : value);
}

}  // namespace

absl::StatusOr<std::vector<Spec>> ParseSpecs(absl::string_view text) {
  return SpecParser(text).Parse();
}

std::string ToString(const std::vector<Spec>& specs) {
  return absl::StrJoin(specs, ",", [](std::string* out, const Spec& spec) {
    absl::StrAppend(out, spec.name);
    if (spec.options.empty()) return;
    absl::StrAppend(out, "{", absl::StrJoin(spec.options, ",", AppendOption), "}");
  });
}

}  // namespace weft
