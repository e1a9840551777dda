#include "base/similar_name.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// The number of edits that make `a` of `b`: insertions, deletions, replacements, and exchanges of
// neighbours.
size_t Distance(absl::string_view a, absl::string_view b) {
  // Of the prefixes of `b`, for the last three prefixes of `a`.
  std::array<std::vector<size_t>, 3> rows;
  for (std::vector<size_t>& row : rows) row.resize(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) rows[1][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& [before_last, last, row] = rows;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool is_same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (is_same ? 0 : 1)});
      const bool are_exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (are_exchanged) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
  }
  return rows[1][b.size()];
}

}  // namespace

std::string DidYouMean(absl::string_view name, const std::vector<absl::string_view>& candidates) {
  absl::string_view best;
  size_t limit = std::max<size_t>(1, name.size() / 3);
  for (absl::string_view candidate : candidates) {
    const auto [shorter, longer] = std::minmax({candidate.size(), name.size()});
    if (longer - shorter > limit || candidate.empty()) continue;
    const size_t distance = Distance(name, candidate);
    if (distance > limit || (!best.empty() && distance == limit)) continue;
    best = candidate;
    limit = distance;
  }
  return best.empty() || name.empty() ? "" : absl::StrCat("; did you mean ", best, "?");
}

}  // namespace weft
