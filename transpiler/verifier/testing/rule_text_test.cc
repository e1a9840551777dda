#include "transpiler/verifier/testing/rule_text.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

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

TEST(ReadRuleText, NeedsAFile) {
  EXPECT_THAT(ReadRuleText("W999"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("rules/W999.prog")));
}

}  // namespace
}  // namespace weft::testing
