#include "tools/files/param_attrs_file.h"

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParamAttrs, AbsentKeysHaveDefaults) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const ParamAttrsByName attrs,
      ParseParamAttrs(R"({"w": {"comm_fusion": 2}, "v": {"in_shard": true}})"));
  ASSERT_EQ(attrs.size(), 2);
  EXPECT_EQ(attrs.at("w").comm_fusion, 2);
  EXPECT_TRUE(attrs.at("w").is_replicated());
  EXPECT_EQ(attrs.at("v").comm_fusion, 1);
  EXPECT_FALSE(attrs.at("v").is_replicated());
}

TEST(ParamAttrs, GroupsAreNamedApart) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ParamAttrsByName attrs,
                            ParseParamAttrs(R"({"w": {"group": "g0"}, "v": {},
                          "groups": {"unused": [7], "g0": [3, 0]}})"));
  ASSERT_EQ(attrs.size(), 2);
  EXPECT_EQ(attrs.at("w").group, (RankGroup{"g0", {0, 3}}));
  EXPECT_FALSE(attrs.at("v").group.has_value());
}

TEST(ParamAttrs, SaysWhatIsWrongWithGroups) {
  const auto status_of = [](absl::string_view json) { return ParseParamAttrs(json).status(); };
  EXPECT_THAT(status_of(R"({"w": {"group": "g"}})"),
              StatusIs(kInvalid,
                       "parameter w: group: expected a group that 'groups' names, found "
                       "\"g\""));
  EXPECT_THAT(status_of(R"({"w": {"group": 0}})"),
              StatusIs(kInvalid, HasSubstr("group: expected the name of a group, found 0")));
  EXPECT_THAT(status_of(R"({"groups": {"g": [0, 1], "g": [2, 3]}, "w": {"group": "g"}})"),
              StatusIs(kInvalid, "key 'g': expected it once in its object, found it twice"));
  EXPECT_THAT(status_of(R"({"w": {"comm_fusion": 1}, "w": {"comm_fusion": 2}})"),
              StatusIs(kInvalid, HasSubstr("key 'w': expected it once")));
  EXPECT_THAT(status_of(R"({"groups": [0]})"),
              StatusIs(kInvalid, HasSubstr("groups: expected a JSON object of names")));
  EXPECT_THAT(status_of(R"({"groups": {"g": 0}})"),
              StatusIs(kInvalid, "groups, 'g': expected a list of ranks, found 0"));
  EXPECT_THAT(status_of(R"({"groups": {"g": []}})"),
              StatusIs(kInvalid, "groups, 'g': expected at least 1 rank"));
  EXPECT_THAT(status_of(R"({"groups": {"g": [1, 0, 1]}})"),
              StatusIs(kInvalid, HasSubstr("expected distinct ranks, found 0, 1, 1")));
  for (const char* rank : {"-1", "0.5", "true", "2147483648", "18446744073709551616"}) {
    EXPECT_THAT(status_of(absl::StrCat(R"({"groups": {"g": [)", rank, "]}}")),
                StatusIs(kInvalid, HasSubstr("groups, 'g': expected a rank")));
  }
}

TEST(ParamAttrs, UpdatesHaveOptions) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const ParamAttrsByName attrs,
      ParseParamAttrs(
          R"({"w": {"lr_ratio": 0.5, "weight_decay": 0}, "v": {"lr_ratio": 2}, "u": {}})"));
  EXPECT_EQ(attrs.at("w").lr_ratio, 0.5);
  EXPECT_EQ(attrs.at("w").weight_decay, 0.0);
  EXPECT_EQ(attrs.at("v").weight_decay, absl::nullopt);
  EXPECT_TRUE(attrs.at("v").HasUpdateOptions());
  EXPECT_FALSE(attrs.at("u").HasUpdateOptions());
  for (const char* value : {"-1", "1e39", "\"1\"", "true", "null"}) {
    EXPECT_THAT(ParseParamAttrs(absl::StrCat(R"({"w": {"lr_ratio": )", value, "}}")),
                StatusIs(kInvalid, HasSubstr("parameter w: lr_ratio: expected a number of 0 or")));
  }
}

TEST(ParamAttrs, SaysWhatIsWrong) {
  EXPECT_THAT(ParseParamAttrs("{"), StatusIs(kInvalid, "not a JSON file"));
  EXPECT_THAT(ParseParamAttrs("[1]"), StatusIs(kInvalid, "expected a JSON object"));
  EXPECT_THAT(ParseParamAttrs(R"({"w": 1})"),
              StatusIs(kInvalid, HasSubstr("parameter w: attributes: expected a JSON object")));
  EXPECT_THAT(ParseParamAttrs(R"({"w": {"fusion": 1}})"),
              StatusIs(kInvalid, HasSubstr("unknown key 'fusion': expected comm_fusion")));
  EXPECT_THAT(ParseParamAttrs(R"({"w": {"comm_fusion": -1}})"),
              StatusIs(kInvalid, HasSubstr("comm_fusion: expected an integer from 0")));
  EXPECT_THAT(ParseParamAttrs(R"({"w": {"comm_fusion": true}})"),
              StatusIs(kInvalid, HasSubstr("comm_fusion: expected an integer from 0")));
  EXPECT_THAT(ParseParamAttrs(R"({"w": {"in_shard": 1}})"),
              StatusIs(kInvalid, HasSubstr("in_shard: expected true or false, found 1")));
}

}  // namespace
}  // namespace weft::testing
