#include "tools/flags/flag_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft {

std::string WithFlags(absl::string_view message) {
  constexpr absl::string_view kMark = "option:";
  std::string text;
  char before = ' ';
  for (size_t at; (at = message.find(kMark)) != message.npos;) {
    if (at > 0) before = message[at - 1];
    const absl::string_view rest = message.substr(at + kMark.size());
    const bool is_flag = !absl::ascii_isalnum(before) && before != '_' && !rest.empty() &&
                         absl::ascii_islower(rest[0]);
    absl::StrAppend(&text, message.substr(0, at), is_flag ? "--" : kMark);
    before = kMark.back();
    message = rest;
  }
  return absl::StrCat(text, message);
}

}  // namespace weft
