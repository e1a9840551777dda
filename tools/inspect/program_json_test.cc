#include "tools/inspect/program_json.h"

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/framework.pb.h"

namespace weft {
namespace {

namespace pb = ::paddle::framework::proto;
using Json = nlohmann::json;

TEST(MessageToJsonTest, SetFieldsAppearUnderTheirNames) {
  pb::OpDesc op;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(type: "scale"
           inputs { parameter: "X" arguments: "a" }
           attrs { name: "scale" type: FLOAT f: 0.1 }
           attrs { name: "shape" type: LONGS longs: -1 longs: 9007199254740993 })pb",
      &op));
  const Json json = Json::parse(MessageToJson(op));
  EXPECT_EQ(json, Json::parse(R"({
    "inputs": [{"parameter": "X", "arguments": ["a"]}],
    "type": "scale",
    "attrs": [{"name": "scale", "type": "FLOAT", "f": 0.1},
              {"name": "shape", "type": "LONGS", "longs": [-1, 9007199254740993]}]})"));
}

TEST(MessageToJsonTest, UnknownFieldsAndEnumNumbersAreShown) {
  // Field 2 (type of the attribute) is 99, field 100 is the bytes "hi".
  pb::OpDesc::Attr attr;
  ASSERT_TRUE(attr.ParsePartialFromString("\x0a\x01n\x10\x63\xa2\x06\x02hi"));
  EXPECT_EQ(Json::parse(MessageToJson(attr)), Json::parse(R"({
    "name": "n",
    "unknown_fields": [{"field": 2, "varint": 99}, {"field": 100, "bytes": "6869"}]})"));
}

TEST(MessageToJsonTest, StringThatIsNotUtf8IsStillJson) {
  pb::OpDesc::Attr attr;
  attr.set_name("a\xff");
  EXPECT_EQ(Json::parse(MessageToJson(attr))["name"], "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace weft
