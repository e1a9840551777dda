#include "transpiler/buckets/bucket_planner.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DType kF = DType::kFloat32, kH = DType::kFloat16;
using Members = std::vector<int>;

BucketPlan PlanOf(absl::string_view policy, const std::vector<BucketGradient>& gradients) {
  const auto parsed = BucketPolicy::Parse(policy);
  WEFT_EXPECT_OK(parsed.status());
  auto plan = PlanBuckets(*parsed, gradients);
  WEFT_EXPECT_OK(plan.status());
  return *std::move(plan);
}

std::vector<Members> Groups(absl::string_view policy,
                            const std::vector<BucketGradient>& gradients) {
  std::vector<Members> groups;
  for (const Bucket& bucket : PlanOf(policy, gradients).buckets) groups.push_back(bucket.members);
  return groups;
}

BucketGradient F(int64_t elements) { return {kF, elements, 4 * elements}; }
BucketGradient H(int64_t elements) { return {kH, elements, 2 * elements}; }
BucketGradient Anew(BucketGradient gradient) {
  gradient.starts_anew = true;
  return gradient;
}

TEST(BucketPlanner, NoneLeavesEveryGradientAlone) {
  EXPECT_THAT(Groups("none", {F(1), F(1)}), ElementsAre(Members{0}, Members{1}));
}

TEST(BucketPlanner, FirstBucketIsSmallAndAGradientThatCrossesTheLimitEndsIt) {
  EXPECT_THAT(
      Groups("bytes{first_bytes=10,max_bytes=30}", {F(1), F(1), F(1), F(5), F(5), F(10), F(1)}),
      ElementsAre(Members{0, 1, 2}, Members{3, 4}, Members{5}, Members{6}));
}

TEST(BucketPlanner, ElementTypesFillSeparateBuckets) {
  EXPECT_THAT(Groups("bytes{first_bytes=8,max_bytes=8}", {F(1), H(1), F(1), F(1), H(3), H(1)}),
              ElementsAre(Members{0, 2}, Members{1, 4}, Members{3}, Members{5}));
}

TEST(BucketPlanner, CountStartsANewBucketWhereTheElementTypeChanges) {
  EXPECT_THAT(Groups("count{count=2}", {F(1), F(1), F(1), H(1), F(1)}),
              ElementsAre(Members{0, 1}, Members{2}, Members{3}, Members{4}));
}

TEST(BucketPlanner, PaddleCountsFromTheLastGradientOn) {
  EXPECT_THAT(Groups("paddle_count{count=2}", {F(1), F(1), F(1), H(1), F(1)}),
              ElementsAre(Members{4}, Members{3}, Members{2, 1}, Members{0}));
}

TEST(BucketPlanner, NoEarlierBucketTakesAGradientThatStartsAnew) {
  EXPECT_THAT(Groups("bytes", {F(1), H(1), Anew(F(1)), H(1), F(1)}),
              ElementsAre(Members{0}, Members{1}, Members{2, 4}, Members{3}));
  for (const char* policy : {"bytes", "count", "singa", "mindspore", "mindspore_size"}) {
    EXPECT_THAT(Groups(policy, {F(1), F(1), Anew(F(1))}), ElementsAre(Members{0, 1}, Members{2}))
        << policy;
  }
  EXPECT_THAT(Groups("paddle_count", {F(1), F(1), Anew(F(1))}),
              ElementsAre(Members{2}, Members{1, 0}));
}

TEST(BucketPlanner, GradientThatTravelsAloneEndsNoBucket) {
  BucketGradient rows = F(1);
  rows.travels_alone = true;
  EXPECT_THAT(Groups("bytes", {F(1), rows, F(1)}), ElementsAre(Members{0, 2}, Members{1}));
}

TEST(BucketPlanner, SaysWhyBucketsEnd) {
  const auto policy = *BucketPolicy::Parse("count{count=2}");
  const BucketPlan plan = PlanOf("count{count=2}", {F(1), F(1), F(1), H(1), Anew(H(1))});
  std::vector<std::string> why;
  for (const Bucket& bucket : plan.buckets) why.push_back(Describe(policy, bucket));
  EXPECT_THAT(why, ElementsAre("full: 2 gradients", "the next gradient has another element type",
                               "a gradient is used before the next one is complete",
                               "no gradient of its kind is left"));
}

TEST(BucketPlanner, UniformFusionIdCountsIfItIsHonoured) {
  std::vector<BucketGradient> gradients = {F(1), F(1)};
  for (BucketGradient& gradient : gradients) gradient.comm_fusion = 0;
  EXPECT_THAT(Groups("mindspore", gradients), ElementsAre(Members{0, 1}));
  EXPECT_THAT(Groups("mindspore{honour_comm_fusion=true}", gradients),
              ElementsAre(Members{0}, Members{1}));
}

TEST(BucketPlanner, SplitIndicesCountFirstUnderAParallelOptimizer) {
  std::vector<BucketGradient> gradients = {F(1), F(1), F(1), F(1)};
  for (int i : {0, 1}) gradients[i].comm_fusion = 2;
  const std::string indices = "split_indices=\"0,3\"";
  EXPECT_THAT(Groups("mindspore{" + indices + "}", gradients),
              ElementsAre(Members{0, 1}, Members{2, 3}));
  for (const char* type : {"1", "3"}) {
    EXPECT_THAT(Groups(absl::StrCat("mindspore{parallel_optimizer=true,fusion_type=", type, ",",
                                    indices, "}"),
                       gradients),
                ElementsAre(Members{0}, Members{1, 2, 3}));
  }
  EXPECT_THAT(Groups("mindspore{parallel_optimizer=true}", gradients),
              ElementsAre(Members{0, 1}, Members{2, 3}));
}

TEST(BucketPlanner, WarnsOfSplitIndicesBeyondTheGradients) {
  EXPECT_THAT(PlanOf("mindspore{split_indices=\"0,7\"}", {F(1), F(1)}).warnings,
              ElementsAre("split index 7 is beyond the 2 gradients"));
  EXPECT_THAT(PlanOf("mindspore{split_indices=\"0\"}", {F(1), F(1)}).warnings, IsEmpty());
}

TEST(BucketPlanner, RefusesNegativeFusionIdsAndWhatNeedsTimes) {
  BucketGradient gradient = F(1);
  gradient.comm_fusion = -1;
  EXPECT_THAT(PlanBuckets(*BucketPolicy::Parse("mindspore"), {gradient}),
              IsInvalidArgument("gradient 0: expected comm"));
  EXPECT_THAT(PlanBuckets(*BucketPolicy::Parse("optimal"), {gradient}),
              IsInvalidArgument("needs times"));
}

TEST(BucketPlanner, CostIsLinearInBucketsThatAreOpen) {
  std::vector<BucketGradient> gradients(200000, F(1));
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i].comm_fusion = static_cast<int>(i) + 1;
  EXPECT_EQ(PlanOf("mindspore", gradients).buckets.size(), gradients.size());
}

}  // namespace
}  // namespace weft::testing
