#include "transpiler/pipeline/options.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

enum class Scale { kAuto, kAvg };

struct Options {
  int nrings = 1;
  bool verbose = false;
  std::string title;
  Scale scale = Scale::kAuto;

  void Bind(OptionBinder& bind) {
    bind.Int("nrings", &nrings, "rings", 1);
    bind.Bool("verbose", &verbose, "say more");
    bind.String("title", &title, "a title");
    bind.Choice("scale", &scale, "who divides", {{"auto", Scale::kAuto}, {"avg", Scale::kAvg}});
  }
};

TEST(OptionBinder, ValuesReachTheirFields) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  WEFT_ASSERT_OK(
      bind.Set({{"nrings", "3"}, {"verbose", "true"}, {"title", "t"}, {"scale", "avg"}}));
  EXPECT_EQ(options.nrings, 3);
  EXPECT_TRUE(options.verbose);
  EXPECT_EQ(options.title, "t");
  EXPECT_EQ(options.scale, Scale::kAvg);
}

TEST(OptionBinder, DefaultsAreListed) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_EQ(bind.options()[0].default_value, "1");
  EXPECT_EQ(bind.options()[3].default_value, "auto");
}

TEST(OptionBinder, UnknownNameListsTheKnownOnes) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_THAT(bind.Set({{"ring", "3"}}),
              StatusIs(kInvalid, Eq("unknown option ring; it has: nrings, verbose, title, scale")));
  EXPECT_THAT(OptionBinder().Set({{"ring", "3"}}),
              StatusIs(kInvalid, Eq("unknown option ring; it has no options")));
}

TEST(OptionBinder, ValueThatDoesNotFitSaysWhatIsExpected) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_THAT(bind.Set({{"nrings", "0"}}),
              StatusIs(kInvalid, Eq("option nrings: expected an integer >= 1, found '0'")));
  EXPECT_THAT(bind.Set({{"nrings", "two"}}), StatusIs(kInvalid, HasSubstr("found 'two'")));
  EXPECT_THAT(bind.Set({{"scale", "sum"}}),
              StatusIs(kInvalid, Eq("option scale: expected auto|avg, found 'sum'")));
}

TEST(OptionBinder, NameGivenTwiceIsRefused) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_THAT(bind.Set({{"nrings", "1"}, {"nrings", "2"}}),
              StatusIs(kInvalid, HasSubstr("given twice")));
}

TEST(ParsePipelineText, PassesWithAndWithoutOptions) {
  EXPECT_THAT(
      ParsePipelineText("a{k=v, k2 = \"x,y\"}, b"),
      IsOkAndHolds(ElementsAre(PassSpec{"a", {{"k", "v"}, {"k2", "x,y"}}}, PassSpec{"b", {}})));
}

TEST(ParsePipelineText, PrintedTextIsReadBack) {
  const std::vector<PassSpec> pipeline = {{"a", {{"k", "x,y"}, {"e", ""}}}, {"b-c", {}}};
  EXPECT_THAT(ParsePipelineText(ToString(pipeline)), IsOkAndHolds(Eq(pipeline)));
}

TEST(ParsePipelineText, MistakesAreNamedWithTheirPosition) {
  EXPECT_THAT(ParsePipelineText(""),
              StatusIs(kInvalid, HasSubstr("the name of a pass at character 1")));
  EXPECT_THAT(ParsePipelineText("a,"),
              StatusIs(kInvalid, HasSubstr("at character 3, found the end")));
  EXPECT_THAT(ParsePipelineText("a{k}"),
              StatusIs(kInvalid, HasSubstr("expected '=' at character 4")));
  EXPECT_THAT(ParsePipelineText("a{k=v"), StatusIs(kInvalid, HasSubstr("',' or '}'")));
  EXPECT_THAT(ParsePipelineText("a b"), StatusIs(kInvalid, HasSubstr("expected ',' or the end")));
  EXPECT_THAT(ParsePipelineText("a{k=\"v}"), StatusIs(kInvalid, HasSubstr("closing")));
}

}  // namespace
}  // namespace weft
