// The accesses to a piece of storage that a later one may clash with.
#ifndef WEFT_OPS_ANALYSIS_ACCESS_HISTORY_H_
#define WEFT_OPS_ANALYSIS_ACCESS_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ops/analysis/stream_clocks.h"

namespace weft {

// The last write, and what was read since then: of each stream the last, outside of branches and
// inside. A write outside of any branch covers everything before it: whoever comes after it comes
// after that, too, or clashed already. A write in a branch covers what is in the same branch only.
// Memory O(1), except where more than three streams are involved at a time.
class AccessHistory {
 public:
  struct Entry {
    StreamAccess access;
    bool clashed = false;  // reported already
  };

  absl::Span<Entry> entries() {
    return more_.empty() ? absl::MakeSpan(few_.data(), size_) : absl::MakeSpan(more_);
  }

  // `branch_start`: the first time in the branch that the write is in.
  void AddWrite(const StreamAccess& access, uint32_t branch_start) {
    if (!access.in_branch) {
      more_.clear();
      size_ = 0;
    } else {
      const absl::Span<Entry> all = entries();
      const auto end = std::remove_if(all.begin(), all.end(), [&](const Entry& entry) {
        return entry.access.in_branch && entry.access.time >= branch_start;
      });
      const size_t size = end - all.begin();
      if (more_.empty()) {
        size_ = static_cast<uint32_t>(size);
      } else {
        more_.resize(size);
      }
    }
    Add(access);
  }
  void AddRead(const StreamAccess& access) { Add(access); }

 private:
  void Add(const StreamAccess& access) {
    for (Entry& entry : entries()) {
      if (entry.access.stream != access.stream || entry.access.in_branch != access.in_branch ||
          entry.access.writes != access.writes) {
        continue;
      }
      entry = {access};
      return;
    }
    if (more_.empty() && size_ < few_.size()) {
      few_[size_++] = {access};
      return;
    }
    if (more_.empty()) more_.assign(few_.begin(), few_.end());
    size_ = 0;
    more_.push_back({access});
  }

  std::array<Entry, 3> few_;
  uint32_t size_ = 0;        // of few_
  std::vector<Entry> more_;  // all of them, where they are more
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_ACCESS_HISTORY_H_
