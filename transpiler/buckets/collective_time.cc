#include "transpiler/buckets/collective_time.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// So that sums of times are finite.
bool IsTime(double seconds) { return seconds >= 0 && seconds <= 1e9; }

}  // namespace

CollectiveTime::CollectiveTime() : segments_{{0, kDefaultLatency, 1 / kDefaultBandwidth}} {}

absl::StatusOr<CollectiveTime> CollectiveTime::AlphaBeta(double latency, double bandwidth) {
  if (!IsTime(latency)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a latency from 0 to 1e9 seconds, found ", latency));
  }
  if (!(bandwidth >= 1 && std::isfinite(bandwidth))) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a bandwidth >= 1 byte per second, found ", bandwidth));
  }
  return CollectiveTime({{0, latency, 1 / bandwidth}});
}

absl::StatusOr<CollectiveTime> CollectiveTime::FromPoints(const std::vector<Point>& points) {
  if (points.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected two sizes or more, found ", points.size()));
  }
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].bytes < 0 || (i > 0 && points[i].bytes <= points[i - 1].bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "point ", i, ": expected sizes >= 0 in ascending order, found ", points[i].bytes));
    }
    if (!IsTime(points[i].seconds)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "point ", i, ": expected a time from 0 to 1e9 seconds, found ", points[i].seconds));
    }
  }
  std::vector<Segment> segments;
  double seconds = points[0].seconds;
  if (points[0].bytes > 0) segments.push_back({0, seconds, 0});
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const double next = std::max(seconds, points[i + 1].seconds);
    const auto size = static_cast<double>(points[i + 1].bytes - points[i].bytes);
    segments.push_back({points[i].bytes, seconds, (next - seconds) / size});
    seconds = next;
  }
  return CollectiveTime(std::move(segments));
}

double CollectiveTime::Seconds(int64_t bytes) const {
  auto it =
      std::upper_bound(segments_.begin(), segments_.end(), bytes,
                       [](int64_t value, const Segment& segment) { return value < segment.begin; });
  if (it != segments_.begin()) --it;
  return it->seconds + it->slope * static_cast<double>(bytes - it->begin);
}

// Parts of x bytes each take at least x * min(Seconds(x) / x), and within a segment the quotient is
// least at one of its ends.
double CollectiveTime::LeastSeconds(int64_t bytes) const {
  const double least = Seconds(0);
  if (bytes <= 0) return least;
  double per_byte = Seconds(bytes) / static_cast<double>(bytes);
  for (const Segment& segment : segments_) {
    if (segment.begin == 0 || segment.begin >= bytes) continue;
    per_byte = std::min(per_byte, segment.seconds / static_cast<double>(segment.begin));
  }
  return std::max(least, per_byte * static_cast<double>(bytes));
}

}  // namespace weft
