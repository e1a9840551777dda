#include "transpiler/buckets/optimal_buckets.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck.h"
#include "rapidcheck/gtest.h"
#include "transpiler/buckets/bucket_planner.h"
#include "transpiler/buckets/timeline.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

CollectiveTime AlphaBeta(double latency, double bandwidth) {
  return *CollectiveTime::AlphaBeta(latency, bandwidth);
}

// When the last collective ends; bits of `ends` say after which gradients a bucket ends. Negative
// if that is not allowed.
double FinishOf(const std::vector<TimedGradient>& gradients, const CollectiveTime& time,
                const std::vector<bool>& ends) {
  std::vector<TimedCollective> collectives;
  bool begins = true;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!begins && gradients[i].starts_anew) return -1;
    if (begins) collectives.emplace_back();
    collectives.back().bytes += gradients[i].bytes;
    collectives.back().ready = gradients[i].ready;
    begins = ends[i];
  }
  return gradients.empty() ? 0 : Schedule(collectives, time).back().end;
}

double LeastFinish(const std::vector<TimedGradient>& gradients, const CollectiveTime& time) {
  double least = 1e300;
  for (size_t bits = 0; bits < size_t{1} << gradients.size(); ++bits) {
    std::vector<bool> ends;
    for (size_t i = 0; i < gradients.size(); ++i) ends.push_back((bits >> i & 1) != 0);
    const double finish = FinishOf(gradients, time, ends);
    if (finish >= 0) least = std::min(least, finish);
  }
  return least;
}

std::vector<bool> EndsOf(const std::vector<int>& begins, size_t count) {
  std::vector<bool> ends(count, false);
  for (int begin : begins) {
    if (begin > 0) ends[begin - 1] = true;
  }
  return ends;
}

TEST(OptimalBuckets, OneBucketIfAllIsReadyAtOnce) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalBuckets found,
                            FindOptimalBuckets({{4, 0}, {4, 0}, {4, 0}}, AlphaBeta(1, 1)));
  EXPECT_THAT(found.begins, ElementsAre(0));
  EXPECT_EQ(found.finish, 13);
  EXPECT_EQ(found.lower_bound, 13);
}

TEST(OptimalBuckets, SmallLastBucketIfCommunicationIsHidden) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalBuckets found,
                            FindOptimalBuckets({{4, 0}, {4, 10}, {1, 20}}, AlphaBeta(1, 1)));
  EXPECT_EQ(found.begins.back(), 2);
  EXPECT_EQ(found.finish, 22);
}

TEST(OptimalBuckets, LargerBucketsWhereThatEndsNoLater) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const OptimalBuckets found,
      FindOptimalBuckets({{4, 0}, {4, 1}, {4, 2}, {4, 3}, {1, 100}}, AlphaBeta(1, 1)));
  EXPECT_THAT(found.begins, ElementsAre(0, 4));
  EXPECT_EQ(found.finish, 102);
}

TEST(OptimalBuckets, NoGradientsNeedNoTime) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalBuckets found, FindOptimalBuckets({}, AlphaBeta(1, 1)));
  EXPECT_THAT(found.begins, IsEmpty());
  EXPECT_EQ(found.finish, 0);
}

TEST(OptimalBuckets, KeepsApartWhatMustNotShare) {
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalBuckets found,
                            FindOptimalBuckets({{4, 0}, {4, 0, true}, {4, 0}}, AlphaBeta(1, 1)));
  EXPECT_THAT(found.begins, ElementsAre(0, 1));
}

TEST(OptimalBuckets, RefusesReadyTimesThatFall) {
  EXPECT_THAT(FindOptimalBuckets({{4, 2}, {4, 1}}, AlphaBeta(1, 1)),
              StatusIs(kInvalid, HasSubstr("gradient 1: expected a ready time >= 2")));
  EXPECT_THAT(FindOptimalBuckets({{4, -1}}, AlphaBeta(1, 1)),
              StatusIs(kInvalid, HasSubstr("expected")));
  EXPECT_THAT(FindOptimalBuckets({{-4, 1}}, AlphaBeta(1, 1)),
              StatusIs(kInvalid, HasSubstr("expected")));
}

TEST(OptimalBuckets, RefusesSizesWhoseSumOverflows) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  EXPECT_THAT(FindOptimalBuckets({{kLarge, 0}, {kLarge, 1}}, CollectiveTime()),
              StatusIs(kInvalid, HasSubstr("gradient 1: expected sizes whose sum is below 2^63")));
}

std::vector<TimedGradient> DrawGradients(int max_count, bool with_dependencies) {
  std::vector<TimedGradient> gradients(*rc::gen::inRange(0, max_count + 1));
  double ready = 0;
  for (TimedGradient& gradient : gradients) {
    gradient.bytes = *rc::gen::element<int64_t>(0, 1, 3, 10, 40, 100);
    ready += *rc::gen::element(0.0, 0.0, 0.5, 3.0, 20.0);
    gradient.ready = ready;
    gradient.starts_anew = with_dependencies && *rc::gen::inRange(0, 5) == 0;
  }
  return gradients;
}

CollectiveTime DrawTime() {
  std::vector<CollectiveTime::Point> points;
  int64_t bytes = 0;
  double seconds = 0;
  const int count = *rc::gen::inRange(2, 6);
  for (int i = 0; i < count; ++i) {
    seconds += *rc::gen::element(0.0, 0.5, 2.0, 9.0);
    points.push_back({bytes, seconds});
    bytes += *rc::gen::element<int64_t>(1, 5, 30, 90);
  }
  return *CollectiveTime::FromPoints(points);
}

RC_GTEST_PROP(OptimalBuckets, NoBucketsOfConsecutiveGradientsEndEarlier, ()) {
  const std::vector<TimedGradient> gradients = DrawGradients(9, true);
  const CollectiveTime time = DrawTime();
  const auto found = FindOptimalBuckets(gradients, time);
  RC_ASSERT(found.ok());
  const double finish = FinishOf(gradients, time, EndsOf(found->begins, gradients.size()));
  RC_ASSERT(std::abs(finish - found->finish) < 1e-9);
  if (gradients.empty()) return;
  RC_ASSERT(std::abs(found->finish - LeastFinish(gradients, time)) < 1e-9);
  RC_ASSERT(found->lower_bound <= found->finish + 1e-9);
}

// Of one element type on one ring.
RC_GTEST_PROP(OptimalBuckets, NeverWorseThanAPolicy, ()) {
  const std::vector<TimedGradient> gradients = DrawGradients(60, true);
  const CollectiveTime time = DrawTime();
  const auto found = FindOptimalBuckets(gradients, time);
  RC_ASSERT(found.ok());
  std::vector<BucketGradient> candidates;
  for (const TimedGradient& gradient : gradients) {
    candidates.push_back({DType::kInt8, gradient.bytes, gradient.bytes, gradient.starts_anew});
  }
  const std::string policy = *rc::gen::element<std::string>(
      "none", "bytes{first_bytes=10,max_bytes=100}", "count{count=3}", "paddle_count{count=4}",
      "mindspore{split_indices=\"2,9\"}", "mindspore_size", "megengine{threshold_bytes=50}",
      "megengine_pass{max_size_mib=1}");
  const auto plan = PlanBuckets(*BucketPolicy::Parse(policy), candidates);
  RC_ASSERT(plan.ok());
  std::vector<int> begins;
  for (const Bucket& bucket : plan->buckets) {
    begins.push_back(*std::min_element(bucket.members.begin(), bucket.members.end()));
  }
  const double finish = FinishOf(gradients, time, EndsOf(begins, gradients.size()));
  RC_ASSERT(finish >= 0);
  RC_ASSERT(found->finish <= finish + 1e-9);
}

// No order and no grouping of the gradients ends earlier.
RC_GTEST_PROP(OptimalBuckets, LowerBoundHoldsForAllGroupings, ()) {
  const std::vector<TimedGradient> gradients = DrawGradients(5, false);
  if (gradients.empty()) return;
  const CollectiveTime time = DrawTime();
  const auto found = FindOptimalBuckets(gradients, time);
  RC_ASSERT(found.ok());
  // Any gradient in any of as many groups, which run in the order of their numbers.
  std::vector<size_t> group(gradients.size(), 0);
  while (true) {
    std::vector<TimedCollective> all(gradients.size());
    std::vector<bool> is_used(gradients.size(), false);
    for (size_t i = 0; i < gradients.size(); ++i) {
      all[group[i]].bytes += gradients[i].bytes;
      all[group[i]].ready = std::max(all[group[i]].ready, gradients[i].ready);
      is_used[group[i]] = true;
    }
    std::vector<TimedCollective> used;
    for (size_t g = 0; g < all.size(); ++g) {
      if (is_used[g]) used.push_back(all[g]);
    }
    RC_ASSERT(Schedule(used, time).back().end >= found->lower_bound - 1e-9);
    size_t i = 0;
    while (i < group.size() && ++group[i] == group.size()) group[i++] = 0;
    if (i == group.size()) break;
  }
}

// Where large collectives are slow, there are many small buckets.
TEST(OptimalBuckets, TenThousandGradientsThatAreSlowTogether) {
  std::vector<TimedGradient> gradients(10000, {4096, 0});
  std::vector<CollectiveTime::Point> points;
  for (int i = 0; i < 17; ++i) {
    points.push_back({i * 4096, 1e-6 * std::pow(i, 1.02)});
  }
  const auto time = CollectiveTime::FromPoints(points);
  WEFT_ASSERT_OK(time.status());
  const auto start = std::chrono::steady_clock::now();
  const auto found = FindOptimalBuckets(gradients, *time);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  WEFT_ASSERT_OK(found.status());
  EXPECT_EQ(found->begins.size(), gradients.size());
  RecordProperty("milliseconds", std::to_string(elapsed.count() * 1e3));
}

TEST(OptimalBuckets, TenThousandGradients) {
  std::vector<TimedGradient> gradients(10000);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = {static_cast<int64_t>(4096 + i * 7919 % 4000000), 1e-5 * (i / 2)};
  }
  std::vector<CollectiveTime::Point> points;
  for (int i = 0; i < 40; ++i)
    points.push_back({int64_t{1} << i, 1e-5 + 2.5e-10 * (int64_t{1} << i)});
  const auto time = CollectiveTime::FromPoints(points);
  WEFT_ASSERT_OK(time.status());
  const auto start = std::chrono::steady_clock::now();
  const auto found = FindOptimalBuckets(gradients, *time);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  WEFT_ASSERT_OK(found.status());
  EXPECT_GE(found->finish, found->lower_bound);
  RecordProperty("milliseconds", std::to_string(elapsed.count() * 1e3));
}

}  // namespace
}  // namespace weft::testing
