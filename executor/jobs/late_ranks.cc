#include "executor/jobs/late_ranks.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kMinRange = 4;   // ranks
constexpr size_t kMaxPlaces = 8;  // in a message

absl::string_view Have(size_t count) { return count == 1 ? " has " : " have "; }

}  // namespace

std::string RankList(const std::vector<int>& ranks) {
  std::string text = "rank ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    if (end - i < kMinRange) {
      absl::StrAppend(&text, ranks[i]);
      ++i;
    } else {
      absl::StrAppend(&text, ranks[i], "-", ranks[end - 1]);
      i = end;
    }
  }
  return text;
}

std::string DescribeLateRanks(absl::string_view call, const std::vector<LateRank>& late,
                              const std::vector<int>& waiting, double seconds) {
  std::vector<int> ranks;
  std::map<absl::string_view, std::vector<int>> by_place;
  for (const LateRank& rank : late) {
    ranks.push_back(rank.rank);
    by_place[rank.last].push_back(rank.rank);
  }
  std::vector<std::pair<absl::string_view, std::vector<int>>> places(by_place.begin(),
                                                                     by_place.end());
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.second.size(), a.second[0]) <
           std::make_pair(b.second.size(), b.second[0]);
  });
  std::string text =
      absl::StrCat(call, ": ", RankList(ranks), Have(ranks.size()), "not arrived after ", seconds,
                   " s; waiting: ", RankList(waiting));
  for (size_t i = 0; i < std::min(places.size(), kMaxPlaces); ++i) {
    const auto& [place, there] = places[i];
    absl::StrAppend(&text, "; ", RankList(there),
                    place == "never arrived" ? Have(there.size()) : " ", place);
  }
  if (places.size() > kMaxPlaces) {
    absl::StrAppend(&text, "; others at ", places.size() - kMaxPlaces, " more places");
  }
  return text;
}

}  // namespace weft
