#include "transpiler/pipeline/options.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {
namespace {

std::string Expected(absl::string_view kind, int64_t min, int64_t max) {
  std::string text(kind);
  if (min > INT32_MIN) absl::StrAppend(&text, " >= ", min);
  if (max < INT32_MAX) absl::StrAppend(&text, min > INT32_MIN ? " and" : "", " <= ", max);
  return text;
}

}  // namespace

void OptionBinder::Int(std::string name, int* field, std::string help, int min, int max) {
  Add({std::move(name), absl::StrCat(*field), std::move(help), Expected("an integer", min, max),
       [field, min, max](absl::string_view text) {
         int value;
         if (!absl::SimpleAtoi(text, &value) || value < min || value > max) return false;
         *field = value;
         return true;
       }});
}

void OptionBinder::Int64(std::string name, int64_t* field, std::string help, int64_t min) {
  Add({std::move(name), absl::StrCat(*field), std::move(help),
       Expected("an integer", min, INT32_MAX), [field, min](absl::string_view text) {
         int64_t value;
         if (!absl::SimpleAtoi(text, &value) || value < min) return false;
         *field = value;
         return true;
       }});
}

void OptionBinder::Bool(std::string name, bool* field, std::string help) {
  Add({std::move(name), *field ? "true" : "false", std::move(help), "true or false",
       [field](absl::string_view text) { return absl::SimpleAtob(text, field); }});
}

void OptionBinder::String(std::string name, std::string* field, std::string help) {
  Add({std::move(name), *field, std::move(help), "a text", [field](absl::string_view text) {
         *field = std::string(text);
         return true;
       }});
}

absl::Status OptionBinder::Set(
    const std::vector<std::pair<std::string, std::string>>& values) const {
  std::set<absl::string_view> seen;
  for (const auto& [name, value] : values) {
    const Option* found = nullptr;
    for (const Option& option : options_) {
      if (option.name == name) found = &option;
    }
    if (found == nullptr) {
      const std::string known = absl::StrJoin(
          options_, ", ", [](std::string* out, const Option& option) { out->append(option.name); });
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown option ", name, known.empty() ? "; it has no options" : "; it has: ", known));
    }
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("option ", name, " is given twice"));
    }
    if (!found->set(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option ", name, ": expected ", found->expected, ", found '", absl::CEscape(value), "'"));
    }
  }
  return absl::OkStatus();
}

namespace {

// A pass over the text of a pipeline.
class PipelineParser {
 public:
  explicit PipelineParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<PassSpec>> Parse() {
    std::vector<PassSpec> passes;
    do {
      PassSpec pass;
      WEFT_ASSIGN_OR_RETURN(pass.name, Word("the name of a pass"));
      if (Take('{')) WEFT_RETURN_IF_ERROR(ParseOptions(&pass));
      passes.push_back(std::move(pass));
    } while (Take(','));
    SkipBlanks();
    if (pos_ < text_.size()) return Error("',' or the end");
    return passes;
  }

 private:
  absl::Status ParseOptions(PassSpec* pass) {
    if (Take('}')) return absl::OkStatus();
    do {
      WEFT_ASSIGN_OR_RETURN(std::string name, Word("the name of an option"));
      if (!Take('=')) return Error("'='");
      WEFT_ASSIGN_OR_RETURN(std::string value, Value());
      pass->options.push_back({std::move(name), std::move(value)});
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
        "pipeline: expected ", expected, " at character ", pos_ + 1, ", found ",
        pos_ < text_.size() ? absl::StrCat("'", absl::CEscape(text_.substr(pos_, 1)), "'")
                            : "the end"));
  }

  absl::string_view text_;
  size_t pos_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<PassSpec>> ParsePipelineText(absl::string_view text) {
  return PipelineParser(text).Parse();
}

std::string ToString(const std::vector<PassSpec>& pipeline) {
  return absl::StrJoin(pipeline, ",", [](std::string* out, const PassSpec& pass) {
    absl::StrAppend(out, pass.name);
    if (pass.options.empty()) return;
    absl::StrAppend(
        out, "{",
        absl::StrJoin(pass.options, ",",
                      [](std::string* option_out, const std::pair<std::string, std::string>& o) {
                        const bool quote = o.second.find_first_of(",{}=") != std::string::npos ||
                                           absl::StripAsciiWhitespace(o.second) != o.second;
                        absl::StrAppend(option_out, o.first, "=", quote ? "\"" : "", o.second,
                                        quote ? "\"" : "");
                      }),
        "}");
  });
}

}  // namespace weft
