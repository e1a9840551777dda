#include "tools/param_attrs_file.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::StatusIs;

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
}  // namespace weft
