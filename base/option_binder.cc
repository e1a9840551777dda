#include "base/option_binder.h"

#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

void OptionBinder::Switch(std::string name, bool* field, std::string help) {
  Add({std::move(name), *field ? "on" : "off", std::move(help), kOnOrOff,
       [field](absl::string_view text) {
         if (text != "on" && text != "off") return false;
         *field = text == "on";
         return true;
       }});
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
      if (option.name == name || (!name.empty() && option.old_name == name)) found = &option;
    }
    if (found == nullptr) {
      const std::string known = absl::StrJoin(
          options_, ", ", [](std::string* out, const Option& option) { out->append(option.name); });
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown option ", name, known.empty() ? "; it has no options" : "; it has: ", known));
    }
    if (!seen.insert(found->name).second) {
      return absl::InvalidArgumentError(absl::StrCat("option ", found->name, " is given twice"));
    }
    if (!found->set(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option ", name, ": expected ", found->expected, ", found '", absl::CEscape(value), "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
