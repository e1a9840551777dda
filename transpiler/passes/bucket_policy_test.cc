#include "transpiler/passes/bucket_policy.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr DType kF = DType::kFloat32, kH = DType::kFloat16;

// The buckets of gradients given as element type and bytes.
std::vector<int> Buckets(absl::string_view policy, std::vector<std::pair<DType, int>> gradients) {
  BucketFiller filler(*BucketPolicy::Parse(policy));
  std::vector<int> buckets;
  for (const auto& [dtype, bytes] : gradients) buckets.push_back(filler.Add(dtype, bytes));
  return buckets;
}

TEST(BucketPolicy, NoneLeavesEveryGradientAlone) {
  EXPECT_THAT(Buckets("none", {{kF, 4}, {kF, 4}, {kF, 4}}), ElementsAre(0, 1, 2));
}

TEST(BucketPolicy, FirstBucketIsSmallAndAGradientThatCrossesTheLimitEndsIt) {
  EXPECT_THAT(Buckets("bytes{first_bytes=10,max_bytes=30}",
                      {{kF, 4}, {kF, 4}, {kF, 4}, {kF, 20}, {kF, 20}, {kF, 40}, {kF, 4}}),
              ElementsAre(0, 0, 0, 1, 1, 2, 3));
}

TEST(BucketPolicy, ElementTypesFillBucketsOfTheirOwnSideBySide) {
  EXPECT_THAT(Buckets("bytes{first_bytes=8,max_bytes=8}",
                      {{kF, 4}, {kH, 2}, {kF, 4}, {kF, 4}, {kH, 6}, {kH, 2}}),
              ElementsAre(0, 1, 0, 2, 1, 3));
}

TEST(BucketPolicy, CountStartsANewBucketWhereTheElementTypeChanges) {
  EXPECT_THAT(Buckets("count{count=2}", {{kF, 4}, {kF, 4}, {kF, 4}, {kH, 2}, {kF, 4}}),
              ElementsAre(0, 0, 1, 2, 3));
}

TEST(BucketPolicy, ClosedBucketIsNotJoined) {
  BucketFiller filler(*BucketPolicy::Parse("bytes"));
  EXPECT_EQ(filler.Add(kF, 4), 0);
  EXPECT_EQ(filler.Add(kF, 4), 0);
  filler.Close(kF);
  EXPECT_EQ(filler.Add(kF, 4), 1);
}

TEST(BucketPolicy, DefaultsAreThoseOfTheHeader) {
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy bytes, BucketPolicy::Parse("bytes"));
  EXPECT_EQ(bytes.first_bytes, 1048576);
  EXPECT_EQ(bytes.max_bytes, 26214400);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy count, BucketPolicy::Parse("count"));
  EXPECT_EQ(count.count, 128);
}

TEST(BucketPolicy, UnknownPoliciesAndParametersAreErrors) {
  EXPECT_THAT(BucketPolicy::Parse("size"),
              StatusIs(kInvalid, HasSubstr("buckets: expected none, bytes{first_bytes=N")));
  EXPECT_THAT(BucketPolicy::Parse(""), StatusIs(kInvalid, HasSubstr("buckets")));
  EXPECT_THAT(BucketPolicy::Parse("none{count=1}"),
              StatusIs(kInvalid, "buckets: unknown option count; it has no options"));
  EXPECT_THAT(BucketPolicy::Parse("count{count=0}"),
              StatusIs(kInvalid, HasSubstr("option count: expected an integer >= 1")));
  EXPECT_THAT(BucketPolicy::Parse("bytes{max_bytes=-1}"),
              StatusIs(kInvalid, HasSubstr("max_bytes")));
  EXPECT_THAT(BucketPolicy::Parse("none,none"), StatusIs(kInvalid, HasSubstr("expected none")));
}

}  // namespace
}  // namespace weft
