#include "transpiler/buckets/optimal_buckets.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::Status Check(absl::Span<const TimedGradient> gradients) {
  int64_t total = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const TimedGradient& gradient = gradients[i];
    const double earliest = i == 0 ? 0 : gradients[i - 1].ready;
    if (!std::isfinite(gradient.ready) || gradient.ready < earliest) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient ", i, ": expected a ready time >= ", earliest,
                       ", as of the gradient before, found ", gradient.ready));
    }
    if (gradient.bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient ", i, ": expected a size >= 0, found ", gradient.bytes));
    }
    int64_t sum;
    if (__builtin_add_overflow(total, gradient.bytes, &sum)) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient ", i, ": expected sizes whose sum is below 2^63 bytes, found ",
                       total, " bytes before it and ", gradient.bytes, " of its own"));
    }
    total = sum;
  }
  return absl::OkStatus();
}

// The least key among the positions of a window whose ends only move forward.
class SlidingMinimum {
 public:
  void Push(int position, double key) {
    while (!positions_.empty() && positions_.back().key >= key) positions_.pop_back();
    positions_.push_back({position, key});
  }
  void DropBefore(int position) {
    while (!positions_.empty() && positions_.front().position < position) positions_.pop_front();
  }
  bool empty() const { return positions_.empty(); }
  int position() const { return positions_.front().position; }

 private:
  struct Entry {
    int position;
    double key;
  };
  std::deque<Entry> positions_;  // keys ascend
};

// How many gradients back a larger bucket may begin: the search is linear.
constexpr int kMaxTries = 256;

class BucketSearch {
 public:
  BucketSearch(absl::Span<const TimedGradient> gradients, const CollectiveTime& time)
      : gradients_(gradients),
        time_(time),
        finish_(gradients.size() + 1, 0),
        bytes_before_(gradients.size() + 1, 0),
        begin_of_(gradients.size() + 1, 0),
        minima_(time.segments().size()),
        reach_(time.segments().size(), 0) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      bytes_before_[i + 1] = bytes_before_[i] + gradients[i].bytes;
    }
  }

  OptimalBuckets Run() {
    const int count = static_cast<int>(gradients_.size());
    int first = 0;  // the first gradient that may share a bucket with the last one
    int idle = 0;   // the last position where the ring is free when the last one is ready
    for (int end = 1; end <= count; ++end) {
      const TimedGradient& last = gradients_[end - 1];
      if (last.starts_anew) first = end - 1;
      while (idle + 1 < end && finish_[idle + 1] <= last.ready) ++idle;
      best_ = std::numeric_limits<double>::infinity();
      if (idle >= first) Try(idle, end, last.ready);
      TryBusy(std::max(first, idle + 1), end);
      finish_[end] = best_;
    }
    OptimalBuckets result;
    double deadline = finish_[count];
    for (int end = count; end > 0;) {
      end = EarliestBegin(end, &deadline);
      result.begins.push_back(end);
    }
    std::reverse(result.begins.begin(), result.begins.end());
    result.finish = finish_[count];
    for (int i = 0; i < count; ++i) {
      const int64_t bytes = bytes_before_[count] - bytes_before_[i];
      result.lower_bound =
          std::max(result.lower_bound, gradients_[i].ready + time_.LeastSeconds(bytes));
    }
    return result;
  }

 private:
  // The largest bucket that ends with gradient `end` - 1, and at `deadline` or earlier. Sets the
  // deadline of the buckets before it.
  int EarliestBegin(int end, double* deadline) const {
    int begin = begin_of_[end];
    // Rounding must not refuse the bucket that was found.
    const double latest = std::max(*deadline, finish_[end]);
    for (int i = end - 1; i >= std::max(0, end - kMaxTries); --i) {
      const double seconds = SecondsOf(i, end);
      if (gradients_[end - 1].ready + seconds > latest) break;
      if (finish_[i] + seconds <= latest) begin = std::min(begin, i);
      if (gradients_[i].starts_anew) break;
    }
    *deadline = latest - SecondsOf(begin, end);
    return begin;
  }

  double SecondsOf(int begin, int end) const {
    return time_.Seconds(bytes_before_[end] - bytes_before_[begin]);
  }

  // A bucket of gradients `begin` .. `end` - 1 that starts at `start`.
  void Try(int begin, int end, double start) {
    const double finish = start + SecondsOf(begin, end);
    if (finish >= best_) return;
    best_ = finish;
    begin_of_[end] = begin;
  }

  // Buckets that begin at `low` or later, where the ring is busy when their last gradient is ready.
  void TryBusy(int low, int end) {
    const std::vector<CollectiveTime::Segment>& segments = time_.segments();
    for (size_t s = segments.size(); s-- > 0;) {
      // The positions before reach_[s] begin buckets that are as large as the segment.
      SlidingMinimum& minimum = minima_[s];
      int& reach = reach_[s];
      for (; reach < end && bytes_before_[end] - bytes_before_[reach] >= segments[s].begin;
           ++reach) {
        const double bytes = static_cast<double>(bytes_before_[reach]);
        minimum.Push(reach, finish_[reach] - segments[s].slope * bytes);
      }
      const int too_large = s + 1 < segments.size() ? reach_[s + 1] : 0;
      minimum.DropBefore(std::max(low, too_large));
      if (!minimum.empty()) Try(minimum.position(), end, finish_[minimum.position()]);
    }
  }

  const absl::Span<const TimedGradient> gradients_;
  const CollectiveTime& time_;
  std::vector<double> finish_;          // of the first k gradients
  std::vector<int64_t> bytes_before_;   // of the first k gradients
  std::vector<int> begin_of_;           // of the last bucket of the first k gradients
  std::vector<SlidingMinimum> minima_;  // by segment
  std::vector<int> reach_;              // by segment
  double best_ = 0;
};

}  // namespace

absl::StatusOr<OptimalBuckets> FindOptimalBuckets(absl::Span<const TimedGradient> gradients,
                                                  const CollectiveTime& time) {
  WEFT_RETURN_IF_ERROR(Check(gradients));
  return BucketSearch(gradients, time).Run();
}

}  // namespace weft
