#include "transpiler/passes/support/name_pattern.h"

#include <cstddef>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft {

bool MatchesPattern(absl::string_view pattern, absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(pattern, '*');
  if (parts.size() == 1) return pattern == text;
  if (!absl::ConsumePrefix(&text, parts.front())) return false;
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    const size_t found = text.find(parts[i]);
    if (found == absl::string_view::npos) return false;
    text.remove_prefix(found + parts[i].size());
  }
  return absl::EndsWith(text, parts.back());
}

}  // namespace weft
