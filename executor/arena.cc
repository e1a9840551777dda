#include "executor/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

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

}  // namespace

ArenaLayout PlaceInArena(absl::Span<const ArenaValue> values) {
  ArenaLayout layout;
  layout.offsets.resize(values.size(), 0);
  layout.live_bytes = MostAlive(values);
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
          {layout.offsets[other], layout.offsets[other] + RoomFor(values[other].bytes)});
    });
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, taken_end] : taken) {
      if (offset + RoomFor(life.bytes) <= begin) break;
      offset = std::max(offset, taken_end);
    }
    layout.offsets[value] = offset;
    layout.bytes = std::max(layout.bytes, offset + RoomFor(life.bytes));
    timeline.Add(value, life);
  }
  return layout;
}

}  // namespace weft
