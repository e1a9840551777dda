// The table of all rules, and what the verifier says of their examples.
#include "transpiler/verify/rules.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verify/verify_example.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

TEST(Rules, AreNumberedByLayerAndSorted) {
  std::string before;
  for (const Rule& rule : Rules()) {
    EXPECT_THAT(rule.id, MatchesRegex("W[1-6][0-9][0-9]"));
    EXPECT_LT(before, rule.id);
    before = rule.id;
  }
  for (Layer layer : AllLayers()) {
    const std::string start = absl::StrCat("W", static_cast<int>(layer));
    EXPECT_THAT(Rules(),
                Contains(::testing::ResultOf(
                    [&](const Rule& rule) { return absl::StartsWith(rule.id, start); }, true)))
        << LayerName(layer);
  }
}

TEST(Rules, SayWhatIsWrongAndWhy) {
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(rule.id);
    EXPECT_STRNE(rule.title, "");
    EXPECT_THAT(rule.title, Not(EndsWith(".")));
    EXPECT_THAT(rule.why, EndsWith("."));
    EXPECT_EQ(&FindRule(rule.id), &rule);
    // An original is there to be compared with an example, by layer 6.
    if (rule.original != nullptr) {
      EXPECT_EQ(rule.id[1], '6');
    }
    // Ranks run different programs for layer 5.
    if (rule.ranks_differ()) {
      EXPECT_EQ(rule.id[1], '5');
    }
  }
}

// "W101 error".
std::vector<std::string> RulesOf(const Findings& findings) {
  std::vector<std::string> rules;
  for (const Finding& finding : findings.all()) {
    rules.push_back(absl::StrCat(finding.rule, " ", SeverityName(finding.severity)));
  }
  return rules;
}

TEST(Rules, EveryExampleBreaksItsRule) {
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(rule.id);
    ASSERT_NE(rule.example, nullptr);
    WEFT_ASSERT_OK_AND_ASSIGN(const Findings findings, VerifyExample(rule));
    const std::vector<std::string> found = RulesOf(findings);
    EXPECT_THAT(found, Contains(absl::StrCat(rule.id, " ", SeverityName(rule.severity))));
    // What ranks do otherwise is all that is wrong.
    if (rule.ranks_differ()) {
      EXPECT_THAT(found, SizeIs(1));
    }
  }
}

// It takes both ranks: nothing is wrong with a program that all of them run.
TEST(Rules, ExamplesOfDifferentRanksAreRightForAllRanks) {
  for (const Rule& rule : Rules()) {
    if (!rule.ranks_differ()) continue;
    SCOPED_TRACE(rule.id);
    Rule rank0 = rule, rank1 = rule;
    if (rule.rank1 != nullptr) rank1.example = rule.rank1;
    if (rule.rank1_startup != nullptr) rank1.startup = rule.rank1_startup;
    for (Rule* one : {&rank0, &rank1}) {
      one->rank1 = one->rank1_startup = nullptr;
      WEFT_ASSERT_OK_AND_ASSIGN(const Findings findings, VerifyExample(*one));
      EXPECT_THAT(RulesOf(findings), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace weft
