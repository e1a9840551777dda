#include "tools/files/bucket_file.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

using nlohmann::json;

absl::StatusOr<json> Planned(const json& file) {
  const auto parsed = ParseBucketFile(file.dump());
  if (!parsed.ok()) return parsed.status();
  const auto text = PlanBucketFile(*parsed, CollectiveTime(), 1);
  if (!text.ok()) return text.status();
  return json::parse(*text);
}

std::vector<json> Sorted(std::vector<json> groups) {
  std::sort(groups.begin(), groups.end());
  return groups;
}

// Members and, where the case says it, whether they are a fused buffer.
std::vector<json> GroupsOf(const json& groups, bool with_fused) {
  std::vector<json> result;
  for (const json& group : groups) {
    json members = group["members"];
    json fused = group.contains("kind") ? json(group["kind"] == "fused") : group["fused"];
    result.push_back(with_fused ? json{members, fused} : json{members});
  }
  return result;
}

TEST(BucketFile, GroupsAreThoseOfTheSystems) {
  std::ifstream file("tests/data/bucket_policies/cases.jsonl");
  std::map<std::string, int> counts;
  for (std::string line; std::getline(file, line);) {
    const json test_case = json::parse(line);
    const json& expect = test_case["expect"];
    const std::string policy = test_case["policy"];
    ++counts[policy];
    const auto planned = Planned(test_case);
    SCOPED_TRACE(test_case["id"].dump());
    if (expect.contains("error") && !expect.contains("required")) {
      EXPECT_THAT(planned.status(), IsInvalidArgument("expected"));
      continue;
    }
    WEFT_ASSERT_OK(planned.status());
    if (expect.contains("required")) {  // the tail joins the last group
      EXPECT_EQ((*planned)["groups"], json::parse(R"([{"members": [0, 1, 2], "fused": true}])"));
      continue;
    }
    std::vector<json> found = GroupsOf((*planned)["groups"], true);
    std::vector<json> expected = GroupsOf(expect["groups"], true);
    EXPECT_EQ(policy == "ddp" ? Sorted(found) : found,
              policy == "ddp" ? Sorted(expected) : expected);
    if (expect.contains("fusion_ids")) {
      std::vector<int> ids(expect["fusion_ids"].size(), -1);
      for (const json& group : (*planned)["groups"]) {
        for (int member : group["members"]) ids[member] = group["id"];
      }
      EXPECT_EQ(json(ids), expect["fusion_ids"]);
    }
    if (expect.contains("warnings")) {
      EXPECT_EQ((*planned)["warnings"].size(), expect["warnings"].get<size_t>());
    }
  }
  const std::map<std::string, int> all = {{"ddp", 18},
                                          {"megengine_cc", 19},
                                          {"megengine_py", 20},
                                          {"mindspore_index", 24},
                                          {"mindspore_param", 20},
                                          {"mindspore_size", 20},
                                          {"paddle_count", 17},
                                          {"singa_threshold", 22}};
  EXPECT_EQ(counts, all);
}

TEST(BucketFile, OptimalPrintsItsLowerBound) {
  const json file = {{"policy", "optimal"},
                     {"grads",
                      {{{"dtype", "fp32"}, {"elements", 1}, {"bytes", 4}, {"ready_us", 1}},
                       {{"dtype", "fp32"}, {"elements", 1}, {"bytes", 4}, {"ready_us", 2}}}}};
  WEFT_ASSERT_OK_AND_ASSIGN(const json planned, Planned(file));
  EXPECT_EQ(planned["groups"].size(), 1);
  EXPECT_NEAR(planned["finish_us"], 22.002, 1e-9);
  EXPECT_NEAR(planned["lower_bound_us"], 22.001, 1e-9);
}

TEST(BucketFile, ElementsAndBytesFollowFromEachOther) {
  const auto parsed = ParseBucketFile(
      json({{"policy", "ddp"},
            {"grads",
             {{{"dtype", "float16"}, {"elements", 3}}, {{"dtype", "float64"}, {"bytes", 16}}}}})
          .dump());
  WEFT_ASSERT_OK(parsed.status());
  EXPECT_EQ(parsed->gradients[0].bytes, 6);
  EXPECT_EQ(parsed->gradients[1].elements, 2);
}

TEST(BucketFile, SaysWhatIsWrong) {
  const json gradient = {{"dtype", "fp32"}, {"elements", 1}, {"bytes", 4}};
  const auto message = [](const json& file) {
    return std::string(Planned(file).status().message());
  };
  EXPECT_EQ(std::string(ParseBucketFile("{").status().message()), "not a JSON file");
  EXPECT_THAT(message(json::array()), HasSubstr("expected a JSON object"));
  EXPECT_THAT(message({{"policy", "ddp"}}), HasSubstr("expected a list 'grads'"));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {{{"dtype", "fp12"}}}}}),
              HasSubstr("key 'dtype': expected an element type, found \"fp12\""));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {{{"bytes", -1}}}}}),
              HasSubstr("key 'bytes': expected an integer >= 0, found -1"));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {gradient}}, {"params", {{"count", 1}}}}),
              HasSubstr("policy 'ddp' has no parameter 'count'"));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {gradient}}, {"params", {{"sparse", {1}}}}}),
              HasSubstr("key 'sparse': expected numbers of gradients"));
  EXPECT_THAT(
      message({{"policy", "megengine_py"}, {"grads", {gradient}}, {"params", {{"order", {0, 0}}}}}),
      HasSubstr("key 'order': expected numbers of gradients, each at most once"));
  EXPECT_THAT(message({{"policy", "mindspore_param"},
                       {"grads", {gradient}},
                       {"params", {{"comm_fusion", {1, 2}}}}}),
              HasSubstr("key 'comm_fusion': expected 1 integers"));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {{{"elements", 2}, {"bytes", 4}}}}}),
              HasSubstr("key 'bytes': expected 8"));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {{{"dtype", "fp32"}}}}}),
              HasSubstr("expected elements or bytes in every gradient"));
  EXPECT_THAT(message({{"policy", "mindspore_size"},
                       {"grads", {gradient}},
                       {"params", {{"threshold", 18446744073709551615u}}}}),
              HasSubstr("key 'threshold': expected an integer of 64 bits"));
  EXPECT_THAT(message({{"policy", "what"}, {"grads", {gradient}}}),
              HasSubstr("buckets: expected none"));
  EXPECT_THAT(message({{"policy", "ddp"}, {"grads", {{{"bytes", 4}, {"repeat", 100000000}}}}}),
              HasSubstr("at most 10000000 gradients"));
}

}  // namespace
}  // namespace weft::testing
