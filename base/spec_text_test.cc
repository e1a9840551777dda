#include "base/spec_text.h"

#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParseSpecs, NamesWithAndWithoutOptions) {
  EXPECT_THAT(ParseSpecs("a{k=v, k2 = \"x,y\"}, b"),
              IsOkAndHolds(ElementsAre(Spec{"a", {{"k", "v"}, {"k2", "x,y"}}}, Spec{"b", {}})));
  EXPECT_THAT(ParseSpecs("a{}"), IsOkAndHolds(ElementsAre(Spec{"a", {}})));
}

TEST(ParseSpecs, PlaceholdersNeedNoValue) {
  EXPECT_THAT(ParseSpecs("a{$k, $l=2,m=3}"),
              IsOkAndHolds(ElementsAre(Spec{"a", {{"$k", ""}, {"$l", "2"}, {"m", "3"}}})));
}

TEST(ParseSpecs, PrintedTextIsReadBack) {
  const std::vector<Spec> specs = {
      {"a", {{"k", "x,y"}, {"e", ""}, {"blank", " x"}, {"$p", ""}, {"$q", "1"}}}, {"b-c", {}}};
  EXPECT_EQ(ToString(specs), "a{k=\"x,y\",e=,blank=\" x\",$p,$q=1},b-c");
  EXPECT_THAT(ParseSpecs(ToString(specs)), IsOkAndHolds(Eq(specs)));
}

TEST(ParseSpecs, MistakesAreNamedWithTheirPosition) {
  EXPECT_THAT(ParseSpecs(""), StatusIs(kInvalid, "expected a name at character 1, found the end"));
  EXPECT_THAT(ParseSpecs("a,"), StatusIs(kInvalid, HasSubstr("at character 3, found the end")));
  EXPECT_THAT(ParseSpecs("a{k}"), StatusIs(kInvalid, "expected '=' at character 4, found '}'"));
  EXPECT_THAT(ParseSpecs("a{$}"), StatusIs(kInvalid, HasSubstr("the name of an option")));
  EXPECT_THAT(ParseSpecs("a{k=v"), StatusIs(kInvalid, HasSubstr("',' or '}'")));
  EXPECT_THAT(ParseSpecs("a b"), StatusIs(kInvalid, HasSubstr("expected ',' or the end")));
  EXPECT_THAT(ParseSpecs("a{k=\"v}"), StatusIs(kInvalid, HasSubstr("closing")));
}

}  // namespace
}  // namespace weft::testing
