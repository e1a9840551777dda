#include "executor/step/arena.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/types/optional.h"
#include "base/free_parts.h"
#include "ops/memory.h"

namespace weft {
namespace {

int64_t RoundedUp(int64_t bytes) {
  const int64_t at_least_one = std::max<int64_t>(bytes, 1);
  return (at_least_one + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Room for a value and for what separates it from the next one.
int64_t RoomFor(int64_t bytes) {
  return RoundedUp(bytes) + (bytes >= static_cast<int64_t>(kSkewedBytes) ? kSkew : 0);
}

int64_t MostAlive(absl::Span<const ArenaValue> values) {
  std::vector<std::pair<int, int64_t>> changes;  // position, bytes
  for (const ArenaValue& value : values) {
    changes.push_back({value.first, RoundedUp(value.bytes)});
    changes.push_back({value.last + 1, -RoundedUp(value.bytes)});
  }
  // At one position, values end before others begin.
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto& [position, bytes] : changes) {
    now += bytes;
    most = std::max(most, now);
  }
  return most;
}

// The values in the order in which they begin.
std::vector<int> ByBegin(absl::Span<const ArenaValue> values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return values[a].first < values[b].first; });
  return order;
}

// Pairs of values that live at the same time.
int64_t CountPairs(absl::Span<const ArenaValue> values) {
  std::priority_queue<int, std::vector<int>, std::greater<int>> ends;  // of those that live
  int64_t pairs = 0;
  for (int value : ByBegin(values)) {
    while (!ends.empty() && ends.top() < values[value].first) ends.pop();
    pairs += static_cast<int64_t>(ends.size());
    ends.push(values[value].last);
  }
  return pairs;
}

// Placed values, by the spans of time in which they live.
class Timeline {
 public:
  explicit Timeline(int end) : spans_(end / kSpan + 1) {}

  void Add(int value, const ArenaValue& life) {
    for (int span = life.first / kSpan; span <= life.last / kSpan; ++span) {
      spans_[span].push_back(value);
    }
  }

  // Calls visit(value) for all that may live in this time, some several times.
  template <typename Visit>
  void ForEachNear(const ArenaValue& life, Visit visit) const {
    for (int span = life.first / kSpan; span <= life.last / kSpan; ++span) {
      for (int value : spans_[span]) visit(value);
    }
  }

 private:
  static constexpr int kSpan = 32;
  std::vector<std::vector<int>> spans_;
};

// Large values first, each as low as possible.
void PlaceBySize(absl::Span<const ArenaValue> values, ArenaLayout* layout) {
  int end = 0;
  for (const ArenaValue& value : values) end = std::max(end, value.last + 1);
  Timeline timeline(end);

  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return values[a].bytes > values[b].bytes; });
  std::vector<int> last_seen(values.size(), -1);
  std::vector<std::pair<int64_t, int64_t>> taken;  // begin, end
  for (int value : order) {
    const ArenaValue& life = values[value];
    taken.clear();
    timeline.ForEachNear(life, [&](int other) {
      if (last_seen[other] == value) return;
      last_seen[other] = value;
      if (values[other].last < life.first || life.last < values[other].first) return;
      taken.push_back(
          {layout->offsets[other], layout->offsets[other] + RoomFor(values[other].bytes)});
    });
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, taken_end] : taken) {
      if (offset + RoomFor(life.bytes) <= begin) break;
      offset = std::max(offset, taken_end);
    }
    layout->offsets[value] = offset;
    layout->bytes = std::max(layout->bytes, offset + RoomFor(life.bytes));
    timeline.Add(value, life);
  }
}

// A block of memory that grows at its end.
class GrowingBlock {
 public:
  int64_t Take(int64_t bytes) {
    if (const absl::optional<size_t> offset = free_.Take(bytes); offset.has_value()) return *offset;
    // Begins in the part at the end, if that is free.
    const size_t offset = free_.TakeLast(end_).value_or(end_);
    end_ = offset + bytes;
    return offset;
  }
  void Give(int64_t offset, int64_t bytes) { free_.Give(offset, bytes); }
  int64_t end() const { return end_; }

 private:
  FreeParts free_;
  size_t end_ = 0;
};

// In the order in which values begin.
void PlaceByTime(absl::Span<const ArenaValue> values, ArenaLayout* layout) {
  using Ending = std::pair<int, int>;  // last, value
  std::priority_queue<Ending, std::vector<Ending>, std::greater<Ending>> living;
  GrowingBlock block;
  for (int value : ByBegin(values)) {
    for (; !living.empty() && living.top().first < values[value].first; living.pop()) {
      const int ended = living.top().second;
      block.Give(layout->offsets[ended], RoomFor(values[ended].bytes));
    }
    layout->offsets[value] = block.Take(RoomFor(values[value].bytes));
    living.push({values[value].last, value});
  }
  layout->bytes = block.end();
}

}  // namespace

ArenaLayout PlaceInArena(absl::Span<const ArenaValue> values, int64_t most_pairs) {
  ArenaLayout layout;
  layout.offsets.resize(values.size(), 0);
  layout.live_bytes = MostAlive(values);
  CountPairs(values) <= most_pairs ? PlaceBySize(values, &layout) : PlaceByTime(values, &layout);
  return layout;
}

}  // namespace weft
