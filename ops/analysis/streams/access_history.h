// The earlier accesses to a piece of storage that a later one may conflict with.
#ifndef WEFT_OPS_ANALYSIS_STREAMS_ACCESS_HISTORY_H_
#define WEFT_OPS_ANALYSIS_STREAMS_ACCESS_HISTORY_H_

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "ops/analysis/streams/stream_clocks.h"

namespace weft {

// The last write, and the reads since then: the last of each stream, outside of branches and
// inside. A write outside of branches covers everything before it: what comes after the write comes
// after that, too, or conflicted already. A write in a branch covers only accesses in the same
// branch. Memory is O(1) unless more than three streams are involved at a time.
class AccessHistory {
 public:
  struct Entry {
    StreamAccess access;
    bool clashed = false;  // reported already
  };

  absl::Span<Entry> entries() { return absl::MakeSpan(entries_); }

  // `branch_start`: the first time in the branch of the access.
  void Add(const StreamAccess& access, uint32_t branch_start) {
    const auto is_covered = [&](const Entry& entry) {
      return !access.in_branch || (entry.access.in_branch && entry.access.time >= branch_start);
    };
    if (access.writes) {
      entries_.erase(std::remove_if(entries_.begin(), entries_.end(), is_covered), entries_.end());
    }
    for (Entry& entry : entries_) {
      if (entry.access.stream == access.stream && entry.access.in_branch == access.in_branch &&
          entry.access.writes == access.writes) {
        entry = {access};
        return;
      }
    }
    entries_.push_back({access});
  }

 private:
  absl::InlinedVector<Entry, 3> entries_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAMS_ACCESS_HISTORY_H_
