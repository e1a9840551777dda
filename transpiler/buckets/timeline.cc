#include "transpiler/buckets/timeline.h"

#include <algorithm>
#include <map>

namespace weft {
namespace {

// The union, as intervals that do not touch, in ascending order.
std::vector<Interval> UnionOf(absl::Span<const Interval> intervals) {
  std::vector<Interval> sorted(intervals.begin(), intervals.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> joined;
  for (const Interval& interval : sorted) {
    if (interval.end <= interval.begin) continue;
    if (!joined.empty() && interval.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, interval.end);
    } else {
      joined.push_back(interval);
    }
  }
  return joined;
}

}  // namespace

std::vector<Interval> Schedule(absl::Span<const TimedCollective> collectives,
                               const CollectiveTime& time) {
  std::map<int, double> free_at;  // by ring
  std::vector<Interval> runs;
  runs.reserve(collectives.size());
  for (const TimedCollective& collective : collectives) {
    double& free = free_at[collective.ring];
    const double begin = std::max(free, collective.ready);
    free = begin + time.Seconds(collective.bytes);
    runs.push_back({begin, free});
  }
  return runs;
}

double ExposedSeconds(absl::Span<const Interval> communication,
                      absl::Span<const Interval> computation) {
  const std::vector<Interval> covers = UnionOf(computation);
  double exposed = 0;
  size_t next = 0;
  for (const Interval& interval : UnionOf(communication)) {
    double begin = interval.begin;
    while (next < covers.size() && covers[next].end <= begin) ++next;
    for (size_t i = next; i < covers.size() && covers[i].begin < interval.end; ++i) {
      exposed += std::max(0.0, covers[i].begin - begin);
      begin = std::max(begin, covers[i].end);
    }
    exposed += std::max(0.0, interval.end - begin);
  }
  return exposed;
}

}  // namespace weft
