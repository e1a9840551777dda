// The free parts of a block of memory, by offset.
#ifndef WEFT_BASE_FREE_PARTS_H_
#define WEFT_BASE_FREE_PARTS_H_

#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/types/optional.h"

namespace weft {

// Best fit; neighbors merge. Each call is O(log of the parts).
class FreeParts {
 public:
  struct Part {
    size_t begin;
    size_t end;
  };

  // The offset of the smallest part that is large enough, the lowest of several. What is left of
  // the part stays free.
  absl::optional<size_t> Take(size_t bytes) {
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) return absl::nullopt;
    const auto [size, offset] = *found;
    Erase(offset, size);
    if (size > bytes) Insert({offset + bytes, offset + size});
    return offset;
  }

  // The begin of the part that ends at `end`, all of which it takes.
  absl::optional<size_t> TakeLast(size_t end) {
    if (by_offset_.empty()) return absl::nullopt;
    const auto [offset, size] = *by_offset_.rbegin();
    if (offset + size != end) return absl::nullopt;
    Erase(offset, size);
    return offset;
  }

  // Returns the free part that it becomes part of.
  Part Give(size_t offset, size_t bytes) {
    Part part{offset, offset + bytes};
    const auto next = by_offset_.find(part.end);
    if (next != by_offset_.end()) {
      part.end += next->second;
      Erase(next->first, next->second);
    }
    auto before = by_offset_.lower_bound(offset);
    if (before != by_offset_.begin() && (--before)->first + before->second == offset) {
      part.begin = before->first;
      Erase(before->first, before->second);
    }
    Insert(part);
    return part;
  }

 private:
  void Insert(Part part) {
    by_offset_.emplace(part.begin, part.end - part.begin);
    by_size_.emplace(part.end - part.begin, part.begin);
  }
  void Erase(size_t offset, size_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<size_t, size_t> by_offset_;           // sizes
  std::set<std::pair<size_t, size_t>> by_size_;  // size, offset
};

}  // namespace weft

#endif  // WEFT_BASE_FREE_PARTS_H_
