#include "transpiler/passes/bucket_policy.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr DType kF = DType::kFloat32, kH = DType::kFloat16;

// The buckets of gradients given as element type and bytes.
std::vector<int> Buckets(absl::string_view policy, std::vector<std::pair<DType, int>> gradients) {
  std::vector<BucketCandidate> candidates;
  for (const auto& [dtype, bytes] : gradients) candidates.push_back({dtype, bytes});
  return AssignBuckets(*BucketPolicy::Parse(policy), candidates);
}

TEST(BucketPolicy, NoneLeavesEveryGradientAlone) {
  EXPECT_THAT(Buckets("none", {{kF, 4}, {kF, 4}, {kF, 4}}), ElementsAre(0, 1, 2));
}

TEST(BucketPolicy, FirstBucketIsSmallAndAGradientThatCrossesTheLimitEndsIt) {
  EXPECT_THAT(Buckets("bytes{first_bytes=10,max_bytes=30}",
                      {{kF, 4}, {kF, 4}, {kF, 4}, {kF, 20}, {kF, 20}, {kF, 40}, {kF, 4}}),
              ElementsAre(0, 0, 0, 1, 1, 2, 3));
}

TEST(BucketPolicy, ElementTypesFillSeparateBuckets) {
  EXPECT_THAT(Buckets("bytes{first_bytes=8,max_bytes=8}",
                      {{kF, 4}, {kH, 2}, {kF, 4}, {kF, 4}, {kH, 6}, {kH, 2}}),
              ElementsAre(0, 1, 0, 2, 1, 3));
}

TEST(BucketPolicy, CountStartsANewBucketWhereTheElementTypeChanges) {
  EXPECT_THAT(Buckets("count{count=2}", {{kF, 4}, {kF, 4}, {kF, 4}, {kH, 2}, {kF, 4}}),
              ElementsAre(0, 0, 1, 2, 3));
}

TEST(BucketPolicy, PaddleCountsFromTheLastGradientOn) {
  EXPECT_THAT(Buckets("paddle_count{count=2}", {{kF, 4}, {kF, 4}, {kF, 4}, {kH, 2}, {kF, 4}}),
              ElementsAre(0, 1, 1, 2, 3));
}

TEST(BucketPolicy, LaterGradientJoinsNoEarlierBucket) {
  const std::vector<BucketCandidate> gradients = {
      {kF, 4}, {kH, 2}, {kF, 4, /*starts_anew=*/true}, {kH, 2}, {kF, 4}};
  EXPECT_THAT(AssignBuckets(*BucketPolicy::Parse("bytes"), gradients), ElementsAre(0, 1, 2, 3, 2));
  const std::vector<BucketCandidate> alike = {{kF, 4}, {kF, 4}, {kF, 4, /*starts_anew=*/true}};
  for (const char* policy : {"bytes", "count", "paddle_count"}) {
    EXPECT_THAT(AssignBuckets(*BucketPolicy::Parse(policy), alike), ElementsAre(0, 0, 1));
  }
}

using Groups = std::set<std::vector<int>>;

// A case of tests/data/bucket_policies. Sparse gradients are not given a choice of buckets.
Groups GroupsOf(const nlohmann::json& test_case) {
  const nlohmann::json& params = test_case["params"];
  BucketPolicy policy;
  if (test_case["policy"] == "ddp") {
    policy.kind = BucketPolicy::Kind::kBytes;
    policy.first_bytes = params["first_bytes"];
    policy.max_bytes = params["cap_bytes"];
  } else {
    policy.kind = BucketPolicy::Kind::kPaddleCount;
    policy.count = params["count"];
  }
  const auto sparse = params.value("sparse", std::set<int>());
  Groups groups;
  std::vector<int> numbers;
  std::vector<BucketCandidate> candidates;
  int number = 0;
  for (const nlohmann::json& run : test_case["grads"]) {
    for (int i = 0; i < run[2].get<int>(); ++i, ++number) {
      if (sparse.count(number) > 0) {
        groups.insert({number});
        continue;
      }
      numbers.push_back(number);
      candidates.push_back({*ParseDType(run[0].get<std::string>()), run[1].get<int64_t>()});
    }
  }
  std::map<int, std::vector<int>> members;
  const std::vector<int> buckets = AssignBuckets(policy, candidates);
  for (size_t i = 0; i < buckets.size(); ++i) members[buckets[i]].push_back(numbers[i]);
  for (auto& [bucket, group] : members) groups.insert(std::move(group));
  return groups;
}

TEST(BucketPolicy, GroupsAreThoseOfPyTorchAndPaddle) {
  std::ifstream file("tests/data/bucket_policies/cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const nlohmann::json test_case = nlohmann::json::parse(line);
    EXPECT_EQ(GroupsOf(test_case), test_case["groups"].get<Groups>()) << test_case["id"];
  }
  EXPECT_EQ(count, 35);
}

TEST(BucketPolicy, DefaultsAreThoseOfTheHeader) {
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy bytes, BucketPolicy::Parse("bytes"));
  EXPECT_EQ(bytes.first_bytes, 1048576);
  EXPECT_EQ(bytes.max_bytes, 26214400);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy count, BucketPolicy::Parse("count"));
  EXPECT_EQ(count.count, 128);
  WEFT_ASSERT_OK_AND_ASSIGN(const BucketPolicy paddle,
                            BucketPolicy::Parse("paddle_count{count=3}"));
  EXPECT_EQ(paddle.kind, BucketPolicy::Kind::kPaddleCount);
  EXPECT_EQ(paddle.count, 3);
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
  EXPECT_THAT(BucketPolicy::Parse("count\n{"), StatusIs(kInvalid, HasSubstr("found 'count\\n{'")));
}

}  // namespace
}  // namespace weft
