// Messages about ranks that do not arrive at a collective.
#ifndef WEFT_EXECUTOR_JOBS_LATE_RANKS_H_
#define WEFT_EXECUTOR_JOBS_LATE_RANKS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// "rank 3", "rank 0, 2", "rank 0-6, 9": four ranks or more in a row are one range. `ranks` ascend.
std::string RankList(const std::vector<int>& ranks);

struct LateRank {
  int rank = 0;
  // Where it is: "never arrived", "last arrived at all-reduce #3 of w (fp32[2])".
  std::string last;
};

// "<call>: rank 1 has not arrived after 5 s; waiting: rank 0, 2; rank 1 last arrived at ...". Ranks
// of the same place are named together; of many places, those of the fewest ranks: they are the
// ones that are late. `late` is not empty; both lists ascend. O(ranks log ranks).
std::string DescribeLateRanks(absl::string_view call, const std::vector<LateRank>& late,
                              const std::vector<int>& waiting, double seconds);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_LATE_RANKS_H_
