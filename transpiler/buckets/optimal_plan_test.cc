#include "transpiler/buckets/optimal_plan.h"

#include <set>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using Members = std::vector<int>;

constexpr DType kF = DType::kFloat32, kH = DType::kFloat16;

std::vector<Members> GroupsOf(const OptimalPlan& plan) {
  std::vector<Members> groups;
  for (const Bucket& bucket : plan.plan.buckets) groups.push_back(bucket.members);
  return groups;
}

TEST(OptimalPlan, ElementTypesThatAlternateShareBucketsOfTheirType) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(100, 1));
  const std::vector<BucketGradient> gradients = {{kF, 1, 4}, {kH, 1, 2}, {kF, 1, 4}, {kH, 1, 2}};
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalPlan plan,
                            PlanOptimalBuckets(gradients, {0, 0, 0, 0}, time, 1));
  EXPECT_THAT(GroupsOf(plan), UnorderedElementsAre(Members{0, 2}, Members{1, 3}));
  EXPECT_EQ(plan.finish, 212);
  EXPECT_LE(plan.lower_bound, plan.finish);
}

TEST(OptimalPlan, WhatTravelsAloneTakesItsTurn) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(1, 1));
  std::vector<BucketGradient> gradients(3, {kF, 1, 4});
  gradients[1].travels_alone = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalPlan plan,
                            PlanOptimalBuckets(gradients, {0, 0, 0}, time, 1));
  EXPECT_THAT(GroupsOf(plan), UnorderedElementsAre(Members{1}, Members{0, 2}));
}

TEST(OptimalPlan, ADependencyBetweenOtherTypesSeparatesToo) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(100, 1));
  std::vector<BucketGradient> gradients = {{kF, 1, 4}, {kH, 1, 2}, {kF, 1, 4}};
  gradients[1].starts_anew = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalPlan plan,
                            PlanOptimalBuckets(gradients, {0, 0, 0}, time, 1));
  EXPECT_THAT(GroupsOf(plan), UnorderedElementsAre(Members{0}, Members{1}, Members{2}));
}

TEST(OptimalPlan, LowerBoundOfTwoRingsIsThatOfHalfTheBytes) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(1, 1));
  const std::vector<BucketGradient> gradients(2, {kF, 1, 10});
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalPlan one, PlanOptimalBuckets(gradients, {0, 0}, time, 1));
  EXPECT_EQ(one.lower_bound, 21);
  EXPECT_EQ(one.finish, 21);
  WEFT_ASSERT_OK_AND_ASSIGN(const OptimalPlan two, PlanOptimalBuckets(gradients, {0, 0}, time, 2));
  EXPECT_EQ(two.lower_bound, 11);
  EXPECT_EQ(two.finish, 11);
}

TEST(LowerBound, EarlyGradientsAreSentWhileLateOnesAreNotReady) {
  WEFT_ASSERT_OK_AND_ASSIGN(const CollectiveTime time, CollectiveTime::AlphaBeta(1, 1));
  EXPECT_EQ(LowerBound({100, 1}, {0, 10}, time, 1), 102);
  EXPECT_EQ(LowerBound({5, 1}, {0, 10}, time, 1), 12);
  EXPECT_EQ(LowerBound({100, 1}, {10, 0}, time, 1), 102);  // in any order
  EXPECT_EQ(LowerBound({}, {}, time, 1), 0);
}

TEST(PlannedCollectives, FollowTheOrderOfCompletionOnRingsInTurn) {
  const std::vector<BucketGradient> gradients(4, {kF, 1, 4});
  const std::vector<Bucket> buckets = {{{0, 3}}, {{1}}, {{2}}};
  const PlannedCollectives planned = CollectivesOf(buckets, gradients, {1, 2, 3, 4}, 2);
  EXPECT_THAT(planned.order, ElementsAre(1, 2, 0));
  EXPECT_EQ(planned.collectives[2].ready, 4);
  EXPECT_EQ(planned.collectives[2].bytes, 8);
  EXPECT_EQ(planned.collectives[1].ring, 1);
  EXPECT_EQ(planned.collectives[2].ring, 0);
}

}  // namespace
}  // namespace weft
