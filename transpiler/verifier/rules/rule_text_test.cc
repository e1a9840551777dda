#include "transpiler/verifier/rules/rule_text.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParseRuleText, ReadsHeadAndPrograms) {
  WEFT_ASSERT_OK_AND_ASSIGN(const RuleText rule, ParseRuleText(R"(# W999 note: nothing to see
#
# Two lines
# of why.
#
# Fix: Nothing.

program {
  # a comment of the program
}

## rank 1 startup
program {
}
)"));
  EXPECT_EQ(rule.heading, "W999 note: nothing to see");
  EXPECT_EQ(rule.why, "Two lines of why.");
  EXPECT_EQ(rule.fix, "Nothing.");
  EXPECT_EQ(rule.main, "program {\n  # a comment of the program\n}");
  EXPECT_EQ(rule.rank1_startup, "program {\n}");
  EXPECT_TRUE(rule.ranks_differ());
  EXPECT_EQ(rule.startup, "");
}

TEST(ParseRuleText, RefusesOtherForms) {
  EXPECT_THAT(ParseRuleText("program {\n}\n"), StatusIs(kInvalid, HasSubstr("'Fix: '")));
  EXPECT_THAT(ParseRuleText("# W999\n#\n# Why.\n#\n# Fix: Nothing.\n"),
              StatusIs(kInvalid, HasSubstr("expected a program")));
  EXPECT_THAT(ParseRuleText("# W999\n#\n# Why.\n#\n# Fix: No.\n\nprogram {\n}\n\n## rank 2\n"),
              StatusIs(kInvalid, HasSubstr("unexpected heading: rank 2")));
}

TEST(RuleTextOf, NamesASimilarRule) {
  EXPECT_THAT(RuleTextOf("w312"), IsNotFound("expected a rule from W101 to W7"));
  EXPECT_THAT(RuleTextOf("w312"), IsNotFound("found w312; did you mean W312?"));
}

TEST(ProgramsOf, NamesWhatDiffersBetweenRanks) {
  RuleText rule;
  rule.main = "a";
  rule.original = "b";
  EXPECT_THAT(ProgramsOf(rule), ElementsAre(Pair("", "a"), Pair("The original", "b")));
  rule.rank1 = "c";
  EXPECT_THAT(ProgramsOf(rule),
              ElementsAre(Pair("Rank 0", "a"), Pair("Rank 1", "c"), Pair("The original", "b")));
}

TEST(MessageOfExample, IsWhatTheVerifierSays) {
  const Rule& rule = FindRule("W101");
  WEFT_ASSERT_OK_AND_ASSIGN(RuleText text, RuleTextOf(rule.id));
  EXPECT_THAT(MessageOfExample(rule, text),
              IsOkAndHolds("error: W101: op 0 (relu) output Out: variable y is not declared"));
  EXPECT_THAT(MessageOfExample(FindRule("W102"), text), IsInternal("does not break it"));
}

}  // namespace
}  // namespace weft::testing
