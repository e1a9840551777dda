#include "base/json_input.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Nested(int levels) {
  return "{\"a\": " + std::string(levels, '[') + std::string(levels, ']') + "}";
}

TEST(JsonInput, RefusesWhatIsNestedDeeply) {
  WEFT_EXPECT_OK(ParseJsonObject(Nested(99)));
  EXPECT_THAT(ParseJsonObject(Nested(100)), StatusIs(kInvalid, HasSubstr("at most 100 levels")));
  EXPECT_THAT(ParseJsonObject(Nested(1000000)), StatusIs(kInvalid, HasSubstr("at most 100")));
  EXPECT_THAT(ParseJsonObject(std::string(1000000, '[')), StatusIs(kInvalid, HasSubstr("levels")));
  // Brackets of strings do not nest.
  WEFT_EXPECT_OK(ParseJsonObject("{\"\\\"" + std::string(200, '[') + "\": 1}"));
}

TEST(JsonInput, RefusesKeysThatAnObjectHasTwice) {
  WEFT_EXPECT_OK(ParseJsonObject(R"({"a": {"b": 1}, "b": {"b": 1, "a": [{"a": 1}, {"a": 1}]}})"));
  EXPECT_THAT(ParseJsonObject(R"({"a": 1, "b": 2, "a": 1})"),
              StatusIs(kInvalid, "key 'a': expected it once in its object, found it twice"));
  EXPECT_THAT(ParseJsonObject(R"({"a": [{"b": 1}, {"b": 1, "b": {}}]})"),
              StatusIs(kInvalid, HasSubstr("key 'b': expected it once")));
  EXPECT_THAT(ParseJsonObject("{\"\\u0061\": 1, \"a\": 2}"),
              StatusIs(kInvalid, HasSubstr("key 'a'")));
}

TEST(JsonInput, IntegersHave64Bits) {
  const auto json = *ParseJsonObject(
      "{\"max\": 9223372036854775807, \"more\": 9223372036854775808, \"less\": -5, \"real\": 1.0}");
  EXPECT_EQ(*JsonInteger("max", json["max"]), INT64_MAX);
  EXPECT_EQ(*JsonInteger("less", json["less"]), -5);
  EXPECT_THAT(JsonInteger("more", json["more"]),
              StatusIs(kInvalid,
                       "key 'more': expected an integer of 64 bits, found "
                       "9223372036854775808"));
  EXPECT_THAT(JsonInteger("real", json["real"]), StatusIs(kInvalid, HasSubstr("found 1.0")));
}

}  // namespace
}  // namespace weft::testing
