// How long a collective takes, by its size.
#ifndef WEFT_TRANSPILER_BUCKETS_COLLECTIVE_TIME_H_
#define WEFT_TRANSPILER_BUCKETS_COLLECTIVE_TIME_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// A function of bytes that never falls: piecewise linear.
class CollectiveTime {
 public:
  struct Point {
    int64_t bytes = 0;
    double seconds = 0;
  };
  // From `begin` bytes to the next segment: seconds + slope * (bytes - begin).
  struct Segment {
    int64_t begin = 0;
    double seconds = 0;
    double slope = 0;  // seconds per byte
  };

  // The alpha-beta model: latency + bytes / bandwidth. 20 us and 4 GB/s if nothing is measured.
  static constexpr double kDefaultLatency = 20e-6;  // seconds
  static constexpr double kDefaultBandwidth = 4e9;  // bytes per second
  // InvalidArgument unless the latency is from 0 to 1e9 s and the bandwidth >= 1 byte/s.
  static absl::StatusOr<CollectiveTime> AlphaBeta(double latency, double bandwidth);
  CollectiveTime();

  // Linear between the points, and beyond them as between the last two; below the first, as long as
  // the first. Where a larger size was measured as faster, it counts as equally fast.
  // InvalidArgument unless there are two points or more, in ascending order of bytes, with times
  // from 0 to 1e9 s.
  static absl::StatusOr<CollectiveTime> FromPoints(const std::vector<Point>& points);

  // `bytes` >= 0. O(log(points)).
  double Seconds(int64_t bytes) const;
  // In ascending order; the first begins at 0.
  const std::vector<Segment>& segments() const { return segments_; }
  // No collectives that together carry so many bytes take less. O(points).
  double LeastSeconds(int64_t bytes) const;

 private:
  explicit CollectiveTime(std::vector<Segment> segments) : segments_(std::move(segments)) {}
  std::vector<Segment> segments_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_COLLECTIVE_TIME_H_
