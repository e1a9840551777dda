#include "base/option_binder.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

enum class Scale { kAuto, kAvg };

struct Options {
  int nrings = 1;
  bool verbose = false;
  bool exact = false;
  std::string title;
  Scale scale = Scale::kAuto;

  void Bind(OptionBinder& bind) {
    bind.Int("nrings", &nrings, "rings", 1);
    bind.Bool("verbose", &verbose, "say more");
    bind.Switch("exact", &exact, "no rounding");
    bind.String("title", &title, "a title");
    bind.Choice("scale", &scale, "who divides", {{"auto", Scale::kAuto}, {"avg", Scale::kAvg}});
  }
};

TEST(OptionBinder, ValuesReachTheirFields) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  WEFT_ASSERT_OK(bind.Set(
      {{"nrings", "3"}, {"verbose", "true"}, {"exact", "on"}, {"title", "t"}, {"scale", "avg"}}));
  EXPECT_EQ(options.nrings, 3);
  EXPECT_TRUE(options.verbose);
  EXPECT_TRUE(options.exact);
  EXPECT_EQ(options.title, "t");
  EXPECT_EQ(options.scale, Scale::kAvg);
}

// As the header shows it.
TEST(OptionBinder, ExampleOfTheHeader) {
  struct Options {
    int nrings = 1;  // communication rings
    void Bind(OptionBinder& bind) { bind.Int("nrings", &nrings, "communication rings", /*min=*/1); }
  };

  Options options;
  OptionBinder bind;
  options.Bind(bind);
  WEFT_ASSERT_OK(bind.Set({{"nrings", "2"}}));
  EXPECT_EQ(options.nrings, 2);
}

TEST(OptionBinder, DefaultsAreListed) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_EQ(bind.options()[0].default_value, "1");
  EXPECT_EQ(bind.options()[2].default_value, "off");
  EXPECT_EQ(bind.options()[4].default_value, "auto");
}

TEST(OptionBinder, UnknownNameListsTheKnownOnes) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_THAT(
      bind.Set({{"ring", "3"}}),
      StatusIs(kInvalid, Eq("unknown option ring; it has: nrings, verbose, exact, title, scale")));
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

TEST(OptionBinder, OldNamesWork) {
  int count = 1;
  OptionBinder bind;
  bind.Int("count", &count, "how many");
  bind.OldName("number");
  WEFT_EXPECT_OK(bind.Set({{"number", "2"}}));
  EXPECT_EQ(count, 2);
  EXPECT_THAT(bind.Set({{"number", "2"}, {"count", "3"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "option count is given twice"));
  EXPECT_THAT(bind.Set({{"number", "many"}}), IsInvalidArgument("option number: expected"));
}

TEST(OptionBinder, NameGivenTwiceIsRefused) {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  EXPECT_THAT(bind.Set({{"nrings", "1"}, {"nrings", "2"}}),
              StatusIs(kInvalid, HasSubstr("given twice")));
}

}  // namespace
}  // namespace weft::testing
